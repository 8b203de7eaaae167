//! What a snapshot is taken at, as text.
//!
//! | text | when |
//! | --- | --- |
//! | `SYMBOL` | before the function's first instruction; also where it was inlined |
//! | `SYMBOL@return` | behind the return of a call |
//! | `SYMBOL>50us` | behind the return of a call that took longer |
//! | `SYMBOL+OFFSET` | before the instruction so many bytes into it (decimal, or hexadecimal with `0x`) |
//! | `FILE:LINE` | before the line's first instruction |
//! | `0xADDRESS` | before the instruction at an address of the running program |
//! | `uprobe:PATH:PLACE` | the same in one file: PLACE is `SYMBOL`, `SYMBOL@return`, `SYMBOL+OFFSET` or `0xOFFSET` in the file |
//! | `usdt:PROVIDER:NAME` | a static probe of the program or its libraries |
//! | `tracepoint:SUBSYSTEM:NAME` | an event of the kernel |
//! | `signal:NAME` | ptrail gets this signal: USR1, USR2 or HUP |
//! | `exit`, `crash` | the program ends; a signal kills it |
//!
//! A function that is really called `exit` is `exit+0`. Times have a unit: ns, us (or µs), ms, s.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// One trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// Execution comes to a place in the code.
    Code(Place),
    /// A call of this function returns.
    Return(String),
    /// A call of this function returns that took longer.
    Slow {
        /// Its name.
        function: String,
        /// How long it may take.
        longer_than: Duration,
    },
    /// The same, in one file alone.
    Uprobe {
        /// The file, by its path.
        path: String,
        /// Where in it.
        place: FilePlace,
    },
    /// A static probe.
    Usdt {
        /// Whose.
        provider: String,
        /// Its name.
        name: String,
    },
    /// An event of the kernel.
    Tracepoint {
        /// Its subsystem, such as `sched`.
        subsystem: String,
        /// Its name in that.
        name: String,
    },
    /// A signal to ptrail.
    Signal(TriggerSignal),
    /// The program ends.
    Exit,
    /// A signal kills the program.
    Crash,
}

/// A place in the code of a running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// So many bytes into a function.
    Function {
        /// Its name.
        name: String,
        /// 0 is its entry.
        offset: u64,
    },
    /// A line of a source file.
    Line {
        /// The file; folders at its beginning may be left out.
        file: String,
        /// From 1.
        line: u32,
    },
    /// An address of the running program.
    Address(u64),
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// So many bytes into a function.
    Function {
        /// Its name.
        name: String,
        /// 0 is its entry.
        offset: u64,
    },
    /// Where a function returns to.
    Return(String),
    /// So many bytes into the file.
    Offset(u64),
}

/// Signals that may ask for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriggerSignal {
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGHUP.
    Hup,
}

impl TriggerSignal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Usr1, Self::Usr2, Self::Hup];

    /// Its name without `SIG`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Hup => "HUP",
        }
    }
}

/// Why a text is no trigger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no trigger: {problem}")]
pub struct ParseError {
    text: String,
    problem: String,
}

impl FromStr for Trigger {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).map_err(|problem| ParseError {
            text: text.to_owned(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Trigger, String> {
    match text {
        "" => return Err("give a function's name, such as main".into()),
        "exit" => return Ok(Trigger::Exit),
        "crash" => return Ok(Trigger::Crash),
        _ => {}
    }
    let word = text.split_once(':');
    match word {
        Some(("signal", name)) => return signal(name).map(Trigger::Signal),
        Some(("tracepoint", rest)) => {
            let (subsystem, name) = pair(rest, "tracepoint:SUBSYSTEM:NAME")?;
            return Ok(Trigger::Tracepoint { subsystem, name });
        }
        Some(("usdt", rest)) => {
            let (provider, name) = pair(rest, "usdt:PROVIDER:NAME")?;
            return Ok(Trigger::Usdt { provider, name });
        }
        Some(("uprobe", rest)) => return uprobe(rest),
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let address = hexadecimal(digits)?;
        return Ok(Trigger::Code(Place::Address(address)));
    }
    if let Some(function) = text.strip_suffix("@return") {
        return Ok(Trigger::Return(symbol(function)?));
    }
    if let Some((function, longer_than)) = slow(text)? {
        return Ok(Trigger::Slow {
            function: symbol(function)?,
            longer_than,
        });
    }
    if let Some(place) = line(text)? {
        return Ok(Trigger::Code(place));
    }
    let (name, offset) = with_offset(text)?;
    Ok(Trigger::Code(Place::Function { name, offset }))
}

fn signal(name: &str) -> Result<TriggerSignal, String> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    TriggerSignal::ALL
        .into_iter()
        .find(|signal| signal.name() == bare)
        .ok_or_else(|| format!("{name:?} is not one of the signals USR1, USR2, HUP"))
}

fn pair(rest: &str, form: &str) -> Result<(String, String), String> {
    match rest.split_once(':') {
        Some((first, second)) if !first.is_empty() && !second.is_empty() => {
            Ok((first.to_owned(), second.to_owned()))
        }
        _ => Err(format!("it must be {form}")),
    }
}

/// The path ends at the first colon behind its last slash: names have colons too.
fn uprobe(rest: &str) -> Result<Trigger, String> {
    let form = "it must be uprobe:PATH:SYMBOL, with an absolute path";
    let name_at = rest.find(':').map_or(0, |colon| {
        rest[..colon].rfind('/').map_or(0, |slash| slash + 1)
    });
    let (path, place) = rest[name_at..]
        .find(':')
        .map(|colon| rest.split_at(name_at + colon))
        .ok_or(form)?;
    let place = &place[1..];
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(form.into());
    }
    let place = if let Some(digits) = place.strip_prefix("0x") {
        FilePlace::Offset(hexadecimal(digits)?)
    } else if let Some(function) = place.strip_suffix("@return") {
        FilePlace::Return(symbol(function)?)
    } else {
        let (name, offset) = with_offset(place)?;
        FilePlace::Function { name, offset }
    };
    Ok(Trigger::Uprobe {
        path: path.to_owned(),
        place,
    })
}

/// `SYMBOL>TIME`; what stands behind a `>` of a template or an operator is no time.
fn slow(text: &str) -> Result<Option<(&str, Duration)>, String> {
    let Some((function, time)) = text.rsplit_once('>') else {
        return Ok(None);
    };
    let time = time.trim();
    if !time.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(None);
    }
    let time = duration(time)?;
    Ok(Some((function.trim_end(), time)))
}

/// `FILE:LINE`, but no name with `::`.
fn line(text: &str) -> Result<Option<Place>, String> {
    let Some((file, number)) = text.rsplit_once(':') else {
        return Ok(None);
    };
    if file.ends_with(':') || !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(None);
    }
    let number = match number.parse::<u32>() {
        Ok(number) if number > 0 => number,
        _ => return Err(format!("{number:?} is no line number")),
    };
    if file.is_empty() {
        return Err("the file's name before the line is missing".into());
    }
    if let Some((file, line)) = file.rsplit_once(':')
        && line.bytes().all(|byte| byte.is_ascii_digit())
        && !line.is_empty()
    {
        return Err(format!(
            "columns are not looked at; did you mean {file}:{line}?"
        ));
    }
    Ok(Some(Place::Line {
        file: file.to_owned(),
        line: number,
    }))
}

/// `SYMBOL` or `SYMBOL+OFFSET`; what stands behind the `+` of an operator is no number.
fn with_offset(text: &str) -> Result<(String, u64), String> {
    if let Some((name, offset)) = text.rsplit_once('+')
        && offset.starts_with(|first: char| first.is_ascii_digit())
    {
        let offset = match offset.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits)?,
            None => offset
                .parse()
                .map_err(|_| format!("{offset:?} is no number of bytes"))?,
        };
        return Ok((symbol(name)?, offset));
    }
    Ok((symbol(text)?, 0))
}

fn symbol(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("the function's name is missing".into());
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(format!(
            "{name:?} is no function's name (an address needs 0x before it)"
        ));
    }
    if let Some(reserved) = name.strip_suffix("@entry") {
        return Err(format!("the entry of a function is just {reserved}"));
    }
    Ok(name.to_owned())
}

fn hexadecimal(digits: &str) -> Result<u64, String> {
    // from_str_radix takes a sign.
    let number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| number)
        .ok_or_else(|| format!("0x{digits} is no hexadecimal number of at most 64 bits"))
}

/// A time with its unit: `300ns`, `50us`, `1.5ms`, `2s`.
///
/// # Errors
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit: u64 = match unit.trim() {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" => return Err(format!("{text:?} has no unit: ns, us, ms or s")),
        unit => return Err(format!("{unit:?} is no unit of time: ns, us, ms or s")),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let nanos = whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(unit))
        .and_then(|nanos| nanos.checked_add(fraction(part, unit)?));
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text:?} is no time, such as 50us"))
}

/// Nanoseconds of the digits behind the point; whole ones only.
fn fraction(digits: &str, unit: u64) -> Option<u64> {
    let mut rest = unit;
    let mut nanos = 0;
    for digit in digits.chars() {
        let digit = u64::from(digit.to_digit(10)?);
        rest /= 10;
        nanos += digit * rest;
        if rest == 0 && digit != 0 {
            return None;
        }
    }
    Some(nanos)
}

/// A time as [`duration`] reads it.
#[must_use]
pub fn duration_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanos > 0 && nanos.is_multiple_of(unit) {
            return format!("{}{name}", nanos / unit);
        }
    }
    format!("{nanos}ns")
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(place) => place.fmt(f),
            Self::Return(function) => write!(f, "{function}@return"),
            Self::Slow {
                function,
                longer_than,
            } => write!(f, "{function}>{}", duration_text(*longer_than)),
            Self::Uprobe { path, place } => match place {
                FilePlace::Function { name, offset: 0 } => write!(f, "uprobe:{path}:{name}"),
                FilePlace::Function { name, offset } => {
                    write!(f, "uprobe:{path}:{name}+{offset:#x}")
                }
                FilePlace::Return(name) => write!(f, "uprobe:{path}:{name}@return"),
                FilePlace::Offset(offset) => write!(f, "uprobe:{path}:{offset:#x}"),
            },
            Self::Usdt { provider, name } => write!(f, "usdt:{provider}:{name}"),
            Self::Tracepoint { subsystem, name } => write!(f, "tracepoint:{subsystem}:{name}"),
            Self::Signal(signal) => write!(f, "signal:{}", signal.name()),
            Self::Exit => f.write_str("exit"),
            Self::Crash => f.write_str("crash"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { name, offset: 0 } if name != "exit" && name != "crash" => {
                f.write_str(name)
            }
            Self::Function { name, offset } => write!(f, "{name}+{offset:#x}"),
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests;
