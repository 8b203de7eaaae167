//! Instruction addresses and the compressed form in which packets carry them.
//!
//! TIP, TIP.PGE, TIP.PGD and FUP share one payload: three IPBytes bits say how many bytes follow
//! and how they combine with the last address of such a packet (SDM, "IP Compression").

use std::fmt;

/// A linear instruction address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ip(pub u64);

impl Ip {
    /// The address `bytes` further on, wrapping at the end of the address space.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ip({:#x})", self.0)
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::LowerHex for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// How many address bytes a packet carries and how they combine with the last address
/// (SDM, table "FUP/TIP IP Reconstruction"). The discriminant is the IPBytes field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IpBytes {
    /// `0b000`: no address, it is suppressed.
    Suppressed = 0,
    /// `0b001`: 2 bytes replace bits 15:0.
    Update16 = 1,
    /// `0b010`: 4 bytes replace bits 31:0.
    Update32 = 2,
    /// `0b011`: 6 bytes, bits 63:48 are copies of bit 47.
    SignExtend48 = 3,
    /// `0b100`: 6 bytes replace bits 47:0.
    Update48 = 4,
    /// `0b110`: 8 bytes, the whole address.
    Full = 6,
}

impl IpBytes {
    /// The form with this IPBytes field; `0b101` and `0b111` are reserved and give `None`.
    #[must_use]
    pub const fn from_field(field: u8) -> Option<Self> {
        Some(match field {
            0 => Self::Suppressed,
            1 => Self::Update16,
            2 => Self::Update32,
            3 => Self::SignExtend48,
            4 => Self::Update48,
            6 => Self::Full,
            _ => return None,
        })
    }

    /// Number of payload bytes in the packet: 0, 2, 4, 6 or 8.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Suppressed => 0,
            Self::Update16 => 2,
            Self::Update32 => 4,
            Self::SignExtend48 | Self::Update48 => 6,
            Self::Full => 8,
        }
    }

    /// Whether the packet carries no address.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Suppressed)
    }
}

/// The address field of a TIP-class or FUP packet, as it stands in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPayload {
    /// Form of the field.
    pub bytes: IpBytes,
    /// Payload bytes, zero-extended; only the low `8 * bytes.len()` bits can be set.
    pub value: u64,
}

impl IpPayload {
    /// A payload without an address.
    pub const SUPPRESSED: Self = Self {
        bytes: IpBytes::Suppressed,
        value: 0,
    };

    /// The whole address, whatever the last one was.
    #[must_use]
    pub const fn full(ip: Ip) -> Self {
        Self {
            bytes: IpBytes::Full,
            value: ip.0,
        }
    }

    /// The shortest payload that gives `ip` whatever the last address was.
    #[must_use]
    pub const fn whole(ip: Ip) -> Self {
        if sign_extend48(ip.0) == ip.0 {
            Self {
                bytes: IpBytes::SignExtend48,
                value: ip.0 & 0xffff_ffff_ffff,
            }
        } else {
            Self::full(ip)
        }
    }
}

const fn sign_extend48(value: u64) -> u64 {
    (((value << 16) as i64) >> 16) as u64
}

/// The IP compression state of one stream: the last address a TIP-class or FUP packet gave.
///
/// PSB resets it to zero; a suppressed address leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp(Ip);

/// By [`IpBytes`]: how many high bits of the last address are kept, and how many are copies of the
/// one below them.
const KEPT_EXTENDED: [(u8, u8); 7] = [(0, 0), (48, 0), (32, 0), (0, 16), (16, 0), (0, 0), (0, 0)];

impl LastIp {
    /// The state after PSB.
    #[must_use]
    pub const fn new() -> Self {
        Self(Ip(0))
    }

    /// The last address, zero after PSB.
    #[must_use]
    pub const fn get(self) -> Ip {
        self.0
    }

    /// Forgets the last address, as PSB does.
    pub const fn reset(&mut self) {
        self.0 = Ip(0);
    }

    /// Takes in a payload and returns the whole address, or `None` if it is suppressed.
    #[inline]
    pub const fn update(&mut self, payload: IpPayload) -> Option<Ip> {
        if matches!(payload.bytes, IpBytes::Suppressed) {
            return None;
        }
        // A table instead of branches: which kind comes next is hard to predict.
        let (kept, extended) = KEPT_EXTENDED[payload.bytes as usize];
        let new = u64::MAX >> kept;
        let value = ((payload.value << extended) as i64 >> extended) as u64;
        self.0 = Ip(self.0.0 & !new | value & new);
        Some(self.0)
    }

    /// The shortest payload that gives `ip`, as a CPU would choose it, and takes it in.
    ///
    /// `Update48` is never chosen: for canonical addresses `SignExtend48` is as long and needs no
    /// context.
    pub const fn compress(&mut self, ip: Ip) -> IpPayload {
        let last = self.0.0;
        let new = ip.0;
        self.0 = ip;
        if last >> 16 == new >> 16 {
            IpPayload {
                bytes: IpBytes::Update16,
                value: new & 0xffff,
            }
        } else if last >> 32 == new >> 32 {
            IpPayload {
                bytes: IpBytes::Update32,
                value: new & 0xffff_ffff,
            }
        } else {
            IpPayload::whole(ip)
        }
    }
}
