use proptest::prelude::*;

use super::*;

fn function(name: &str, offset: u64) -> Trigger {
    Trigger::Code(Place::Function {
        name: name.into(),
        offset,
    })
}

fn slow_call(function: &str, nanos: u64) -> Trigger {
    Trigger::Slow {
        function: function.into(),
        longer_than: Duration::from_nanos(nanos),
    }
}

fn place(file: &str, line: u32) -> Trigger {
    Trigger::Code(Place::Line {
        file: file.into(),
        line,
    })
}

#[test]
fn each_form_has_its_meaning() {
    let cases = [
        ("main", function("main", 0)),
        ("main+4", function("main", 4)),
        ("main+0x10", function("main", 16)),
        ("exit+0", function("exit", 0)),
        ("exit", Trigger::Exit),
        ("crash", Trigger::Crash),
        ("main@return", Trigger::Return("main".into())),
        ("f>50us", slow_call("f", 50_000)),
        ("f>50µs", slow_call("f", 50_000)),
        ("f > 1.5ms", slow_call("f", 1_500_000)),
        ("f>0ns", slow_call("f", 0)),
        ("v<int>::push>2s", slow_call("v<int>::push", 2_000_000_000)),
        ("v<int>", function("v<int>", 0)),
        ("a::operator>", function("a::operator>", 0)),
        ("a::operator>>", function("a::operator>>", 0)),
        ("a::operator>>300ns", slow_call("a::operator>", 300)),
        ("a::operator+", function("a::operator+", 0)),
        ("a::operator++", function("a::operator++", 0)),
        ("a::operator+(int)", function("a::operator+(int)", 0)),
        ("<T as a::B>::f", function("<T as a::B>::f", 0)),
        ("a.c:12", place("a.c", 12)),
        ("src/a b.c:1", place("src/a b.c", 1)),
        ("C:a.c:1", place("C:a.c", 1)),
        ("0x401000", Trigger::Code(Place::Address(0x40_1000))),
        ("signal:USR1", Trigger::Signal(TriggerSignal::Usr1)),
        ("signal:SIGHUP", Trigger::Signal(TriggerSignal::Hup)),
        (
            "tracepoint:sched:sched_switch",
            Trigger::Tracepoint {
                subsystem: "sched".into(),
                name: "sched_switch".into(),
            },
        ),
        (
            "usdt:libc:memory_sbrk_less",
            Trigger::Usdt {
                provider: "libc".into(),
                name: "memory_sbrk_less".into(),
            },
        ),
        (
            "uprobe:/lib/libc.so.6:malloc",
            Trigger::Uprobe {
                path: "/lib/libc.so.6".into(),
                place: FilePlace::Function {
                    name: "malloc".into(),
                    offset: 0,
                },
            },
        ),
        (
            "uprobe:/usr/bin/a:b::c@return",
            Trigger::Uprobe {
                path: "/usr/bin/a".into(),
                place: FilePlace::Return("b::c".into()),
            },
        ),
        (
            "uprobe:/usr/bin/a:0x1139",
            Trigger::Uprobe {
                path: "/usr/bin/a".into(),
                place: FilePlace::Offset(0x1139),
            },
        ),
    ];
    for (text, meaning) in cases {
        assert_eq!(text.parse(), Ok(meaning), "{text}");
    }
}

#[test]
fn errors_say_what_to_write_instead() {
    let cases = [
        ("", "give a function's name"),
        ("signal:KILL", "not one of the signals USR1, USR2, HUP"),
        ("tracepoint:sched", "tracepoint:SUBSYSTEM:NAME"),
        ("usdt::x", "usdt:PROVIDER:NAME"),
        ("uprobe:malloc", "uprobe:PATH:SYMBOL"),
        ("uprobe:lib.so:malloc", "absolute path"),
        ("uprobe:/lib/a.so:", "name is missing"),
        ("0xmain", "no hexadecimal number"),
        ("0x", "no hexadecimal number"),
        ("0x+1", "no hexadecimal number"),
        ("@return", "name is missing"),
        ("f>50", "has no unit"),
        ("f>50m", "no unit of time"),
        ("f>5..0us", "is no time"),
        (">50us", "name is missing"),
        ("a.c:0", "no line number"),
        (":12", "file's name before the line is missing"),
        ("a.c:12:5", "did you mean a.c:12?"),
        ("main+99999999999999999999", "no number of bytes"),
        ("401000", "an address needs 0x before it"),
        ("main@entry", "is just main"),
    ];
    for (text, part) in cases {
        let error = text.parse::<Trigger>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.contains(&format!("{text:?}")), "{error}");
    }
}

#[test]
fn times_are_exact_or_refused() {
    assert_eq!(duration("0.001us"), Ok(Duration::from_nanos(1)));
    assert_eq!(duration("1.500ms"), Ok(Duration::from_micros(1500)));
    assert!(duration("0.5ns").is_err());
    assert!(duration("99999999999999999999s").is_err());
    assert!(duration("20000000000s").is_err());
    assert_eq!(duration_text(Duration::from_micros(1500)), "1500us");
    assert_eq!(duration_text(Duration::ZERO), "0ns");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z_][a-zA-Z0-9_.$]{0,12}",
        "[a-z]{1,4}(::[a-z]{1,4}){1,3}(<[a-z]{1,3}>)?",
        Just("exit".to_owned()),
        Just("crash".to_owned()),
        Just("a::operator>".to_owned()),
    ]
}

fn trigger() -> impl Strategy<Value = Trigger> {
    let path = "/[a-z.0-9]{1,8}(/[a-z.0-9]{1,8}){0,2}";
    let in_file = prop_oneof![
        (name(), any::<u64>()).prop_map(|(name, offset)| FilePlace::Function { name, offset }),
        name().prop_map(FilePlace::Return),
        any::<u64>().prop_map(FilePlace::Offset),
    ];
    prop_oneof![
        (name(), prop_oneof![Just(0), any::<u64>()])
            .prop_map(|(name, offset)| Trigger::Code(Place::Function { name, offset })),
        ("[a-z/]{1,8}\\.[ch]", 1_u32..).prop_map(|(file, line)| place(&file, line)),
        any::<u64>().prop_map(|address| Trigger::Code(Place::Address(address))),
        name().prop_map(Trigger::Return),
        (name(), any::<u64>()).prop_map(|(name, nanos)| slow_call(&name, nanos)),
        (path, in_file).prop_map(|(path, place)| Trigger::Uprobe { path, place }),
        ("[a-z]{1,6}", "[a-z_]{1,9}").prop_map(|(provider, name)| Trigger::Usdt { provider, name }),
        ("[a-z]{1,6}", "[a-z_]{1,9}")
            .prop_map(|(subsystem, name)| Trigger::Tracepoint { subsystem, name }),
        proptest::sample::select(&TriggerSignal::ALL[..]).prop_map(Trigger::Signal),
        Just(Trigger::Exit),
        Just(Trigger::Crash),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same(trigger in trigger()) {
        let text = trigger.to_string();
        prop_assert_eq!(text.parse::<Trigger>(), Ok(trigger), "{}", text);
    }

    #[test]
    fn any_text_is_a_trigger_or_an_error(text in "\\PC{0,40}|[-a-z0-9:>+@x./? µ]{0,20}") {
        if let Ok(trigger) = text.parse::<Trigger>() {
            prop_assert_eq!(trigger.to_string().parse::<Trigger>(), Ok(trigger));
        }
    }
}
