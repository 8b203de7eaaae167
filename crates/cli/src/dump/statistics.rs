//! Counts of packets and their bytes, by type.

use std::collections::BTreeMap;
use std::fmt::Write;

use ptrail_pt::{BadPacket, CpuId, Lexed, Packet, PacketSink};
use serde_json::{Map, Value, json};

use super::packet_text::describe;
use super::source::Stream;

/// Packets and bytes of one type.
#[derive(Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// What one stream holds.
#[derive(Default)]
pub(super) struct Statistics {
    types: BTreeMap<&'static str, Count>,
    /// Stretches that are no packets, among them what is before the first PSB.
    bad: Count,
    /// Whether the last item was cut off by the end of the data.
    cut: bool,
}

impl Statistics {
    pub(super) fn of(stream: &Stream<'_>, cpu: Option<CpuId>) -> Self {
        let mut statistics = Self::default();
        let (skipped, lexer) = stream.lexer(cpu);
        if skipped > 0 {
            statistics.bad.add(1, skipped);
        }
        lexer.drain(&mut statistics);
        statistics
    }

    fn total(&self) -> Count {
        self.types
            .values()
            .fold(Count::default(), |mut sum, count| {
                sum.add(count.packets, count.bytes);
                sum
            })
    }

    pub(super) fn text(&self, stream: &Stream<'_>) -> String {
        let mut text = format!("# {}\n", stream.title());
        let total = stream.bytes.len() as u64;
        let mut line = |name: &str, count: Count| {
            let share = 100.0 * count.bytes as f64 / total.max(1) as f64;
            let Count { packets, bytes } = count;
            let _ = writeln!(
                text,
                "{name:<9}  {packets:>12}  {bytes:>14} bytes  {share:>6.2} %"
            );
        };
        let mut types: Vec<_> = self.types.iter().collect();
        types.sort_by_key(|(_, count)| std::cmp::Reverse(count.bytes));
        for (name, count) in types {
            line(name, *count);
        }
        line("all", self.total());
        if self.bad.packets > 0 {
            line("skipped", self.bad);
        }
        if self.cut {
            text.push_str("# the data ends inside a packet\n");
        }
        text
    }

    pub(super) fn json(&self, stream: &Stream<'_>) -> Value {
        let object = |count: &Count| json!({"packets": count.packets, "bytes": count.bytes});
        let types: Map<String, Value> = self
            .types
            .iter()
            .map(|(name, count)| (name.to_string(), object(count)))
            .collect();
        let mut line = Map::new();
        line.extend(stream.owner_json());
        line.insert("name".into(), stream.name.as_str().into());
        line.insert("bytes".into(), stream.bytes.len().into());
        line.insert("types".into(), types.into());
        line.insert("all".into(), object(&self.total()));
        line.insert("skipped".into(), object(&self.bad));
        Value::Object(line)
    }
}

impl PacketSink for Statistics {
    fn packet(&mut self, lexed: Lexed) {
        let packets = match lexed.packet {
            // The lexer joins PADs, but each is a packet.
            Packet::Pad { run } => run.into(),
            _ => 1,
        };
        let name = describe(&lexed.packet).0;
        self.types
            .entry(name)
            .or_default()
            .add(packets, lexed.len.into());
    }

    fn bad(&mut self, bad: BadPacket) {
        self.bad.add(1, bad.skipped);
        self.cut = bad.truncated;
    }
}
