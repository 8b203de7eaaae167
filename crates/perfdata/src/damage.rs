//! What is wrong with a file that could be read nevertheless.

use std::path::{Path, PathBuf};

use crate::Error;

/// So many faults are told one by one.
const TOLD: usize = 32;

/// Faults found so far in one file.
pub(crate) struct Damage {
    path: PathBuf,
    told: Vec<Error>,
    more: u64,
    last_offset: u64,
}

impl Damage {
    pub(crate) fn new(path: &Path) -> Self {
        Damage {
            path: path.to_owned(),
            told: Vec::new(),
            more: 0,
            last_offset: 0,
        }
    }

    /// The file whose faults are told from now on.
    pub(crate) fn path(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    pub(crate) fn add(&mut self, error: Error) {
        if self.told.len() < TOLD {
            self.told.push(error);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn malformed(&mut self, offset: u64, what: impl Into<String>) {
        self.last_offset = offset;
        self.add(Error::Malformed {
            path: self.path.clone(),
            offset,
            what: what.into(),
        });
    }

    pub(crate) fn finish(mut self) -> Vec<Error> {
        if self.more > 0 {
            let what = format!("the last of {} more faults like these", self.more);
            self.told.push(Error::Malformed {
                path: self.path,
                offset: self.last_offset,
                what,
            });
        }
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_faults_are_counted() {
        let mut damage = Damage::new(Path::new("x"));
        for offset in 0..100 {
            damage.malformed(offset, "broken");
        }
        let told = damage.finish();
        assert_eq!(told.len(), TOLD + 1);
        let last = told[TOLD].to_string();
        assert_eq!(
            last,
            "x: at offset 0x63: the last of 68 more faults like these"
        );
    }
}
