use prost::Message as _;
use ptrail_pt::{Ip, PerfTime, Picos};
use ptrail_trace::{
    Function, FunctionId, Opened, Recording, SinkError, Source, Span, SpanFlags, SpanSink, Track,
    TrackId, TrackKind,
};

use super::{PerfettoWriter, proto};

/// A file, packet by packet, as `Trace { repeated TracePacket packet = 1; }`.
#[derive(Clone, PartialEq, prost::Message)]
struct Trace {
    #[prost(bytes = "vec", repeated, tag = "1")]
    packets: Vec<Vec<u8>>,
}

fn written(feed: impl FnOnce(&mut PerfettoWriter) -> Result<(), SinkError>) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pftrace");
    let mut writer = PerfettoWriter::create(&path).unwrap();
    start(&mut writer).unwrap();
    feed(&mut writer).unwrap();
    writer.finish().unwrap();
    Trace::decode(&*std::fs::read(path).unwrap())
        .unwrap()
        .packets
}

fn start(writer: &mut PerfettoWriter) -> Result<(), SinkError> {
    let (base, wall_clock, source) = (PerfTime(1000), None, Source::Hardware);
    writer.begin(&Recording {
        base,
        wall_clock,
        source,
        command: Vec::new(),
    })?;
    let kind = TrackKind::Thread { pid: 7, tid: 8 };
    writer.track(&Track {
        id: TrackId(0),
        kind,
        name: "t".into(),
        process: "p".into(),
    })?;
    let (id, name, module, address) = (FunctionId(0), "f".to_owned(), "m".to_owned(), Ip(0x80));
    writer.function(&Function {
        id,
        name,
        mangled: None,
        module,
        address,
        source: None,
    })
}

fn opened(begin: u64, call_site: Option<Ip>) -> Opened {
    let (track, function, flags) = (TrackId(0), FunctionId(0), SpanFlags::empty());
    Opened {
        track,
        function,
        begin: Picos(begin),
        call_site,
        flags,
    }
}

fn closed(begin: u64, end: u64, flags: SpanFlags) -> Span {
    Span {
        track: TrackId(0),
        function: FunctionId(0),
        begin: Picos(begin),
        end: Picos(end),
        depth: 0,
        call_site: None,
        instructions: 300,
        self_instructions: 2,
        flags,
    }
}

/// The bytes of two events, put together by hand from the public schema.
#[test]
fn events_are_what_the_schema_says() {
    let packets = written(|writer| {
        writer.open(&opened(5_999, None))?;
        writer.open(&opened(6_000, Some(Ip(0x90))))?;
        writer.span(&closed(6_000, 7_000, SpanFlags::empty()))?;
        writer.span(&closed(5_999, 7_000, SpanFlags::CUT))
    });
    let [.., _, inner, end, last] = &packets[..] else {
        panic!("{} packets", packets.len())
    };
    #[rustfmt::skip]
    let begins: &[u8] = &[
        0x40, 1, // timestamp: 1 ns later
        0x50, 2, // trusted_packet_sequence_id
        0x5a, 25, // track_event
            0x22, 5, 0x08, 5, 0x88, 1, 1, // module, string_value_iid
            0x22, 5, 0x08, 6, 0x38, 0x80, 1, // address, pointer_value
            0x50, 1, // name_iid
            0x22, 5, 0x08, 4, 0x38, 0x90, 1, // call_site, pointer_value
            0x48, 1, // TYPE_SLICE_BEGIN
        0x68, 2, // SEQ_NEEDS_INCREMENTAL_STATE
    ];
    assert_eq!(sorted_fields(inner), sorted_fields(begins));
    #[rustfmt::skip]
    let ends: &[u8] = &[
        0x40, 1,
        0x50, 2,
        0x5a, 17,
            0x50, 1,
            0x22, 5, 0x08, 1, 0x18, 0xac, 2, // instructions, uint_value
            0x22, 4, 0x08, 2, 0x18, 2, // self_instructions, uint_value
            0x48, 2, // TYPE_SLICE_END
        0x68, 2,
    ];
    assert_eq!(sorted_fields(end), sorted_fields(ends));
    assert!(
        last.windows(5).any(|bytes| bytes == b"\x32\x03cut"),
        "{last:?}"
    );
}

/// Fields of a packet; their order is free.
fn sorted_fields(packet: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    let mut rest = packet;
    while let [key, len, ..] = *rest {
        let len = 2 + if key & 7 == 2 { usize::from(len) } else { 0 };
        fields.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    fields.sort();
    fields
}

fn decoded(packets: &[Vec<u8>]) -> Vec<proto::TracePacket> {
    packets
        .iter()
        .map(|packet| proto::TracePacket::decode(&**packet).unwrap())
        .collect()
}

#[test]
fn each_sequence_starts_afresh_and_interns_before_use() {
    let packets = decoded(&written(|writer| {
        writer.open(&opened(0, None))?;
        writer.span(&closed(0, 1, SpanFlags::empty()))?;
        writer.open(&opened(1, None))?;
        writer.span(&closed(1, 1, SpanFlags::empty()))
    }));
    for sequence in [1, 2] {
        let mut own = packets
            .iter()
            .filter(|packet| packet.trusted_packet_sequence_id == Some(sequence));
        let first = own.next().unwrap();
        assert_eq!(first.sequence_flags, Some(3));
        assert_eq!(first.first_packet_on_sequence, Some(true));
        assert!(
            own.all(|packet| packet.sequence_flags == Some(2)
                && packet.first_packet_on_sequence.is_none())
        );
    }
    let names = |packet: &proto::TracePacket| {
        packet
            .interned_data
            .as_ref()
            .map_or(0, |data| data.event_names.len())
    };
    assert_eq!(packets.iter().map(names).sum::<usize>(), 1);
    let first_use = packets.iter().find(|packet| {
        packet
            .track_event
            .as_ref()
            .is_some_and(|e| e.name_iid.is_some())
    });
    assert_eq!(names(first_use.unwrap()), 1);
}

#[test]
fn a_time_that_goes_back_is_written_whole() {
    let packets = decoded(&written(|writer| {
        writer.open(&opened(9_000, None))?;
        writer.span(&closed(9_000, 4_000, SpanFlags::empty()))?;
        writer.open(&opened(10_000, None))?;
        writer.span(&closed(10_000, 10_000, SpanFlags::empty()))
    }));
    let times: Vec<_> = packets[packets.len() - 4..]
        .iter()
        .map(|p| (p.timestamp, p.timestamp_clock_id))
        .collect();
    assert_eq!(
        times,
        [
            (Some(9), None),
            (Some(1004), Some(3)),
            (Some(1), None),
            (Some(0), None)
        ]
    );
}

#[test]
fn calls_out_of_order_are_errors_and_leave_no_file() {
    type Feed = fn(&mut PerfettoWriter) -> Result<(), SinkError>;
    let wrong: [(Feed, &str); 4] = [
        (
            |w| w.span(&closed(0, 1, SpanFlags::empty())),
            "none is open",
        ),
        (
            |w| {
                w.open(&Opened {
                    track: TrackId(9),
                    ..opened(0, None)
                })
            },
            "track 9 was not announced",
        ),
        (
            |w| {
                w.open(&Opened {
                    function: FunctionId(9),
                    ..opened(0, None)
                })
            },
            "function 9 was not announced",
        ),
        (start, "track 0 was announced out of order"),
    ];
    for (feed, message) in wrong {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = PerfettoWriter::create(&dir.path().join("t.pftrace")).unwrap();
        start(&mut writer).unwrap();
        let error = feed(&mut writer).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(writer.finish().is_err());
        drop(writer);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}
