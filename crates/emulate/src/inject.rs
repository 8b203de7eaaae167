//! Faults on purpose: what can go wrong when a CPU's trace is recorded, for tests and demonstrations.
//! All of it is declared in the capture's notes.

use std::fmt;
use std::str::FromStr;

/// Faults that can be injected, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    rates: Vec<(Fault, f64)>,
    /// The same seed gives the same faults for the same run.
    pub seed: u64,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The trace unit loses packets, and says so (OVF).
    Overflow,
    /// The kernel had no room for trace, and says so (AUX record with the flag TRUNCATED).
    Truncate,
    /// The thread is off the CPU for a while.
    Switch,
    /// A record of a mapping is lost (LOST record).
    LostSideband,
    /// A bit of the trace is another one.
    Corrupt,
}

const NAMES: [(&str, Fault); 5] = [
    ("overflow", Fault::Overflow),
    ("truncate", Fault::Truncate),
    ("switch", Fault::Switch),
    ("lost-sideband", Fault::LostSideband),
    ("corrupt", Fault::Corrupt),
];

impl FromStr for Injection {
    type Err = String;

    /// `FAULT:RATE,…`; the seed is 0.
    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (name, rate) = part.split_once(':')?;
            let (_, fault) = NAMES.iter().find(|(known, _)| *known == name)?;
            let rate: f64 = rate.parse().ok()?;
            (0.0..=1.0).contains(&rate).then_some((*fault, rate))
        };
        let rates = text.split(',').map(|text| {
            part(text).ok_or_else(|| {
                let names = NAMES.map(|(name, _)| name).join(", ");
                format!("{text:?} is not FAULT:RATE, with a rate from 0 to 1 and one of {names}")
            })
        });
        Ok(Self {
            rates: rates.collect::<Result<_, _>>()?,
            seed: 0,
        })
    }
}

/// Throws the dice, and counts.
pub(crate) struct Injector {
    injection: Injection,
    state: u64,
    counts: [u64; NAMES.len()],
}

impl Injector {
    pub(crate) fn new(injection: Injection) -> Self {
        // xorshift64* must not start from zero.
        let state = injection.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            injection,
            state,
            counts: [0; NAMES.len()],
        }
    }

    /// Whether this fault happens now.
    pub(crate) fn happens(&mut self, fault: Fault) -> bool {
        let rates = &self.injection.rates;
        let Some(&(_, rate)) = rates.iter().find(|(known, _)| *known == fault) else {
            return false;
        };
        let happens = (self.next() >> 11) as f64 / ((1_u64 << 53) as f64) < rate;
        if happens {
            self.counts[fault as usize] += 1;
        }
        happens
    }

    /// A number from 0 to `bound` − 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// Marsaglia's and Vigna's xorshift64*.
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// What was injected, for people.
impl fmt::Display for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "faults were injected on purpose (seed {})",
            self.injection.seed
        )?;
        for (number, (fault, _)) in self.injection.rates.iter().enumerate() {
            let separator = if number == 0 { ": " } else { ", " };
            let (name, _) = NAMES[*fault as usize];
            write!(f, "{separator}{name} {}", self.counts[*fault as usize])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed() {
        let injection: Injection = "overflow:0.5,lost-sideband:1".parse().expect("valid");
        assert_eq!(
            injection.rates,
            [(Fault::Overflow, 0.5), (Fault::LostSideband, 1.0)]
        );
        for wrong in ["", "overflow", "overflow:2", "overflow:-1", "flood:0.1"] {
            assert!(wrong.parse::<Injection>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn faults_happen_as_often_as_said_and_are_counted() {
        let mut injection: Injection = "overflow:0.25,corrupt:0".parse().expect("valid");
        injection.seed = 3;
        let mut injector = Injector::new(injection);
        let overflows = (0..10_000).filter(|_| injector.happens(Fault::Overflow));
        let overflows = overflows.count();
        assert!((2_300..2_700).contains(&overflows), "{overflows}");
        assert!(!(0..1_000).any(|_| injector.happens(Fault::Corrupt)));
        assert!(!injector.happens(Fault::Switch));
        let said =
            format!("faults were injected on purpose (seed 3): overflow {overflows}, corrupt 0");
        assert_eq!(injector.to_string(), said);
    }
}
