//! Cold parts: code that gcc moves out of `f` into a symbol of its own, `f.cold` (`f.cold.3` before
//! gcc 9). Jumps go there and back, so it is the same function.
//!
//! Other clones (`f.part.0`, `f.constprop.0`, `f.isra.0`) are called and keep their names.

use std::collections::HashMap;

use crate::name::Names;
use crate::symbols::{Binding, Symbol, SymbolKind};

/// For the address of each cold part, the address of its function.
pub(crate) fn owners(symbols: &[Symbol], names: Names<'_>) -> HashMap<u64, u64> {
    let typed = || {
        symbols
            .iter()
            .filter(|symbol| symbol.kind != SymbolKind::Label)
    };
    let colds: Vec<(&Symbol, &[u8])> = typed()
        .filter_map(|symbol| Some((symbol, base_name(names.get(symbol.name))?)))
        .collect();
    if colds.is_empty() {
        return HashMap::new();
    }
    let mut candidates: HashMap<&[u8], Candidates> = colds
        .iter()
        .map(|&(_, base)| (base, Candidates::default()))
        .collect();
    for symbol in typed() {
        if let Some(same_name) = candidates.get_mut(names.get(symbol.name)) {
            same_name.add(symbol);
        }
    }
    for same_name in candidates.values_mut() {
        same_name.by_unit.sort_unstable();
    }
    colds
        .into_iter()
        .filter_map(|(cold, base)| Some((cold.address, candidates.get(base)?.choose(cold)?)))
        .filter(|(cold, owner)| cold != owner)
        .collect()
}

/// Functions of one name. Several source files may have a static function of that name, and a
/// damaged or hostile file thousands.
#[derive(Default)]
struct Candidates {
    /// Addresses of visible functions, ascending.
    visible: Vec<u64>,
    /// Addresses of static functions, ascending.
    local: Vec<u64>,
    /// Source file and address of static functions, ascending.
    by_unit: Vec<(u32, u64)>,
}

impl Candidates {
    /// Symbols come by ascending address.
    fn add(&mut self, symbol: &Symbol) {
        if symbol.binding == Binding::Local {
            self.local.push(symbol.address);
            self.by_unit.push((symbol.unit, symbol.address));
        } else {
            self.visible.push(symbol.address);
        }
    }

    /// The one of the same source file, else the one that is visible everywhere, else the nearest.
    fn choose(&self, cold: &Symbol) -> Option<u64> {
        let from = self.by_unit.partition_point(|&(unit, _)| unit < cold.unit);
        let to = self.by_unit.partition_point(|&(unit, _)| unit <= cold.unit);
        let same_unit = nearest(&self.by_unit[from..to], cold.address, |&(_, address)| {
            address
        });
        same_unit
            .or_else(|| nearest(&self.visible, cold.address, |&address| address))
            .or_else(|| nearest(&self.local, cold.address, |&address| address))
    }
}

fn nearest<T>(ascending: &[T], address: u64, address_of: impl Fn(&T) -> u64) -> Option<u64> {
    let later = ascending.partition_point(|item| address_of(item) < address);
    let neighbours = [
        later
            .checked_sub(1)
            .and_then(|before| ascending.get(before)),
        ascending.get(later),
    ];
    neighbours
        .into_iter()
        .flatten()
        .map(address_of)
        .min_by_key(|found| found.abs_diff(address))
}

/// `f` of `f.cold` and `f.cold.3`.
fn base_name(name: &[u8]) -> Option<&[u8]> {
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let plain = match name[..name.len() - digits].strip_suffix(b".") {
        Some(numbered) if digits > 0 => numbered,
        _ => name,
    };
    plain.strip_suffix(b".cold").filter(|base| !base.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{base_name, nearest};

    #[test]
    fn base_names() {
        let cases: [(&str, Option<&str>); 8] = [
            ("f.cold", Some("f")),
            ("f.cold.12", Some("f")),
            ("f.part.0.cold", Some("f.part.0")),
            ("_ZN1AC2Ev.cold", Some("_ZN1AC2Ev")),
            ("f.cold.x", None),
            ("f.colder", None),
            (".cold", None),
            ("f.part.0", None),
        ];
        for (name, base) in cases {
            assert_eq!(
                base_name(name.as_bytes()),
                base.map(str::as_bytes),
                "{name}"
            );
        }
    }

    #[test]
    fn nearest_neighbours() {
        let at = |address| nearest(&[10u64, 20, 50], address, |&found| found);
        assert_eq!(
            [0, 14, 16, 34, 36, 99].map(at),
            [10, 10, 20, 20, 50, 50].map(Some)
        );
        assert_eq!(nearest(&[], 1, |&found: &u64| found), None);
    }
}
