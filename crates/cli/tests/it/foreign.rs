//! Traces of real CPUs that others recorded, from LLDB bundles and raw packets with their code,
//! against what libipt and their own projects made of them.

use std::path::Path;

use serde_json::Value;

use crate::recorded::{dump, ptrail};
use crate::reference::{folder, gunzip, json, libxdc_traces};

/// Name, count and digest of each stream's instructions.
fn digests(args: &[&str]) -> Vec<Value> {
    let output = ptrail()
        .args(["dump", "--instructions", "--digest", "--json"])
        .args(args)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// That a stream's instructions are libipt's.
#[track_caller]
fn compare(found: &Value, expected: &Value, what: &str) {
    assert_eq!(found["instructions"], expected["instructions"], "{what}");
    let digest = expected["ip_fnv1a64"].as_str().unwrap();
    assert_eq!(
        found["ip_fnv1a64"].as_str(),
        digest.strip_prefix("0x"),
        "{what}"
    );
}

#[test]
fn lldb_bundles_give_libipts_instructions() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    for (bundle, trace, threads) in [
        ("intelpt-trace/trace.json", "3842849", 1),
        ("intelpt-trace", "3842849", 1),
        ("intelpt-trace/trace_2threads.json", "3842849", 2),
        (
            "intelpt-trace-multi-file/multi-file-no-ld.json",
            "multi-file",
            1,
        ),
    ] {
        let found = digests(&[folder.join(bundle).to_str().unwrap()]);
        assert_eq!(found.len(), threads, "{bundle}");
        let reference = json(&folder.join(format!("reference/{trace}.json")));
        for thread in &found {
            compare(
                thread,
                &reference["insn_decoder_whole_stream_resync"],
                bundle,
            );
        }
    }
}

/// libipt decodes a CPU's stream with the code of one process only, so it finds the instructions of
/// that process's threads: one thread on each of the two CPUs.
#[test]
fn an_lldb_bundle_of_cpus_is_cut_by_its_context_switches() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    for bundle in [
        "trace.json",
        "trace_missing_threads.json",
        "trace_with_string_numbers.json",
    ] {
        let bundle = folder.join("intelpt-multi-core-trace").join(bundle);
        let found = digests(&[bundle.to_str().unwrap()]);
        for (thread, trace) in [(3_497_496, "cpu51"), (3_497_497, "cpu45")] {
            let found = found.iter().find(|found| found["tid"] == thread).unwrap();
            assert_eq!(found["pid"], 3_497_234);
            let reference = json(&folder.join(format!("reference/{trace}.json")));
            compare(found, &reference["insn_decoder_whole_stream_resync"], trace);
        }
        // All other threads ran code that is not in the bundle.
        let others = found.iter().filter(|found| found["pid"] != 3_497_234);
        assert!(others.clone().count() > 0);
        for other in others {
            assert_eq!(other["instructions"], 0, "{other}");
        }
    }
}

/// Function, module, depth and instructions of each span.
fn spans(bundle: &Path) -> Vec<(String, String, i64, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    dump(bundle, &["--spans"])
        .iter()
        .filter(|line| line["function"].is_string())
        .map(|span| {
            (
                text(&span["function"]),
                text(&span["module"]),
                span["depth"].as_i64().unwrap(),
                span["instructions"].as_u64().unwrap(),
            )
        })
        .collect()
}

/// The call tree that LLDB's test names: main calls foo() over its stub, foo() calls bar() over its
/// stub, and the returns go back over the stubs. Spans come in the order of their ends.
#[test]
fn an_lldb_bundle_has_the_calls_that_lldb_names() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let spans = spans(&folder.join("intelpt-trace-multi-file/multi-file-no-ld.json"));
    // main ends last; depths count from it.
    let main = spans.last().unwrap().2;
    let mut rest = spans.iter();
    for (function, module, depth) in [
        ("foo()@plt", "a.out", 1),
        ("bar()@plt", "libfoo.so", 2),
        ("bar()", "libbar.so", 2),
        ("foo()", "libfoo.so", 1),
        ("main", "a.out", 0),
    ] {
        let is = |span: &&(String, String, i64, u64)| {
            (span.0.as_str(), span.1.as_str(), span.2 - main) == (function, module, depth)
        };
        assert!(rest.by_ref().any(|span| is(&span)), "{function}: {spans:?}");
    }
}

/// One thread runs in foo(), the other in bar(), all the time.
#[test]
fn an_lldb_bundle_of_cpus_has_the_calls_that_lldb_names() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let spans = spans(&folder.join("intelpt-multi-core-trace"));
    let own: Vec<_> = spans.iter().filter(|span| span.3 > 0).collect();
    let expected = [("foo()", 50_003), ("bar()", 61_825)];
    let expected = expected.map(|(name, count)| (name.to_owned(), "m.out".to_owned(), 0, count));
    assert_eq!(own, expected.iter().collect::<Vec<_>>());
}

/// Each instruction has the function, the inlined function, the file and the line that LLDB's test
/// names. LLDB stops at the missing linker; libipt, and ptrail, go on and find 18 instructions more.
#[test]
fn an_lldb_bundle_has_the_source_lines_that_lldb_names() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let expected = &json(&folder.join("expected.json"))["intelpt-trace-multi-file"];
    let output = ptrail()
        .args(["dump", "--instructions", "--lines", "--json"])
        .arg(folder.join("intelpt-trace-multi-file/multi-file-no-ld.json"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let mut found = lines.filter(|line| line["ip"].is_string());
    let mut compared = 0;
    for item in expected["items"].as_array().unwrap() {
        let Some(ip) = item["ip"].as_str() else {
            continue;
        };
        let found = found.by_ref().find(|found| found["ip"] == ip).unwrap();
        assert_eq!(found["module"], item["module"], "{found}");
        let symbol = item["symbol"].as_str().map(|symbol| {
            let stub = symbol.strip_prefix("symbol stub for: ");
            stub.map_or(symbol.to_owned(), |name| format!("{name}@plt"))
        });
        let symbol = symbol.unwrap_or_else(|| ".plt".to_owned());
        assert_eq!(found["function"], symbol, "{found}");
        if let Some(inlined) = item["inlined"].as_str() {
            assert_eq!(found["inlined"], serde_json::json!([inlined]), "{found}");
        }
        if let Some(file) = item["file"].as_str() {
            assert!(found["file"].as_str().unwrap().ends_with(file), "{found}");
            assert_eq!(found["line"], item["line"], "{found}");
        }
        compared += 1;
    }
    assert_eq!(compared, expected["instructions"].as_u64().unwrap());
}

#[test]
fn wrong_lldb_bundles_are_refused_with_the_place() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let expected = json(&folder.join("expected.json"));
    let malformed = expected["intelpt-trace"]["malformed_bundles"]
        .as_array()
        .unwrap();
    let pairs = malformed.iter().map(|bundle| {
        let text = |key: &str| bundle[key].as_str().unwrap().to_owned();
        (text("bundle"), text("error_at"))
    });
    let more = [
        ("intelpt-trace/trace_wrong_cpu.json", "cpuInfo.family"),
        (
            "intelpt-kernel-trace/trace_kernel_with_process.json",
            "kernel",
        ),
        ("intelpt-kernel-trace/trace_kernel_wo_cpus.json", "kernel"),
    ];
    let more = more.map(|(bundle, place)| (bundle.to_owned(), place.to_owned()));
    for (bundle, place) in pairs.chain(more) {
        let output = ptrail()
            .args(["dump", "--instructions"])
            .arg(folder.join(&bundle))
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{bundle}: {message}");
        assert!(output.stdout.is_empty());
        assert!(message.contains(&format!(": {place}: ")), "{message}");
    }
}

/// `--code` for each page: the n-th of `dump` lies at the n-th address.
fn pages(addresses: &[u8], dump: &str, page: u64) -> Vec<String> {
    let (addresses, _) = addresses.as_chunks();
    let given = addresses.iter().enumerate().flat_map(|(number, address)| {
        let (at, start) = (u64::from_le_bytes(*address), number as u64 * page);
        let code = format!("{dump}:{start:#x}-{:#x}@{at:#x}", start + page);
        // An address that ends in 0xfff marks a page that could not be read.
        (at % page == 0).then(|| ["--code".to_owned(), code])
    });
    given.flatten().collect()
}

#[test]
fn raw_traces_with_their_pages_give_libipts_instructions() {
    for (trace, raw) in libxdc_traces() {
        let beside = raw.parent().and_then(Path::parent).unwrap();
        let path = |key: &str| beside.join(trace["files"][key].as_str().unwrap());
        let addresses = std::fs::read(path("page_addresses")).unwrap();
        let code = pages(&addresses, path("page_bytes").to_str().unwrap(), 4096);
        let mut args = vec!["--raw", raw.to_str().unwrap(), "--cpu", "6/94/3"];
        args.extend(code.iter().map(String::as_str));
        let found = digests(&args);
        assert_eq!(found.len(), 1);
        let expected = &trace["libipt_insn_decoder_cpu_6_94_resync"];
        if expected["error_count"] == 0 {
            compare(&found[0], expected, raw.to_str().unwrap());
        } else {
            // Pages are missing, and how a decoder finds its way again is its own affair.
            let (most, least) = (expected, &trace["libipt_insn_decoder_cpu_6_94"]);
            let count = |value: &Value| value["instructions"].as_u64().unwrap();
            let found = count(&found[0]);
            assert!(
                (count(least)..=count(most)).contains(&found),
                "{}: {found}",
                raw.display()
            );
        }
    }
}

#[test]
fn a_raw_trace_with_its_program_runs_the_instructions_that_its_own_test_expects() {
    let Some(folder) = folder("dynamorio") else {
        return;
    };
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let code = format!("{}@0x400000", path("hello"));
    let output = ptrail()
        .args(["dump", "--instructions", "--cpu", "6/85/4"])
        .args(["--raw", &path("pt.bin"), "--code", &code])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let reference = json(&folder.join("reference.json"));
    let expected = reference["expected"]["ips"].as_array().unwrap();
    let expected: Vec<_> = expected
        .iter()
        .map(|ip| ip.as_str().unwrap().strip_prefix("0x").unwrap())
        .collect();
    assert_eq!(found, expected);
}

/// The parts of a Griffin log: the packets in order, and the pages by address.
fn unpack_griffin(trace: &Value, log: &[u8], into: &Path) -> (String, Vec<String>) {
    let mut packets = Vec::new();
    let mut code = Vec::new();
    for item in trace["items"].as_array().unwrap() {
        let number = |key: &str| item[key].as_u64().unwrap() as usize;
        let data = || &log[number("data_offset")..][..number("data_bytes")];
        match item["kind"].as_str().unwrap() {
            "buffer" => packets.extend_from_slice(data()),
            "xpage" => {
                let base = item["base"].as_str().unwrap();
                let file = into.join(base);
                std::fs::write(&file, data()).unwrap();
                code.push(format!("{}@{base}", file.display()));
            }
            _ => {}
        }
    }
    let raw = into.join("trace.pt");
    std::fs::write(&raw, packets).unwrap();
    (raw.display().to_string(), code)
}

#[test]
fn a_whole_process_has_libipts_instructions_and_its_modules_functions() {
    let Some(folder) = folder("arcus") else {
        return;
    };
    let reference = json(&folder.join("reference.json"));
    let trace = &reference["traces"][0];
    let log = gunzip(&folder.join(trace["log"].as_str().unwrap()));
    let temporary = tempfile::tempdir().unwrap();
    let (raw, mut code) = unpack_griffin(trace, &log, temporary.path());
    let expected = &trace["streams"][0]["libipt_insn_decoder"];

    let mut args = vec!["--raw", &raw];
    args.extend(code.iter().flat_map(|code| ["--code", code]));
    compare(&digests(&args)[0], expected, "pages");

    // What is given last lies on top: the modules, for their names.
    let modules = trace["modules"].as_array().unwrap().iter().map(|module| {
        let file = folder.join(module["file"].as_str().unwrap());
        let base = module["load_base"].as_str().unwrap();
        format!("{}@{base}", file.display())
    });
    code.extend(modules);
    let mut args = vec!["--raw", &raw];
    args.extend(code.iter().flat_map(|code| ["--code", code]));
    compare(&digests(&args)[0], expected, "modules");

    whole_process(&args);
}

/// From exec to exit: each call but those that never return ends, and nothing is a guess.
fn whole_process(input: &[&str]) {
    let output = ptrail()
        .args(["dump", "--spans", "--json"])
        .args(input)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let spans: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cut = |span: &&Value| span["flags"].to_string().contains("cut");
    let text = |span: &Value, key: &str| span[key].as_str().unwrap_or_default().to_owned();
    let open = spans.iter().filter(cut);
    let open: Vec<_> = open
        .map(|span| format!("{} {}", span["depth"], text(span, "function")))
        .collect();
    // Innermost first.
    let expected = [
        "5 [syscall]",
        "4 _exit",
        "3 sub_39c50",
        "2 exit",
        "1 __libc_start_main",
        "0 _start",
    ];
    assert_eq!(open, expected);
    for span in &spans {
        for flag in ["guessed", "unwound", "inferred", "async", "resumed"] {
            assert!(!span["flags"].to_string().contains(flag), "{span}");
        }
    }
    for (function, module, depth) in [
        ("_start", "ld-2.28.so", 0),
        ("_start", "program1", 0),
        ("__libc_start_main", "libc-2.28.so", 1),
        ("__cxa_atexit", "libc-2.28.so", 2),
        ("__libc_csu_init", "program1", 2),
        ("_init", "program1", 3),
        ("main", "program1", 2),
        ("do_main", "program1", 3),
        ("good_func", "program1", 4),
        ("printf@plt", "program1", 5),
        ("printf", "libc-2.28.so", 5),
        ("vfprintf", "libc-2.28.so", 6),
        ("exit", "libc-2.28.so", 2),
        ("__do_global_dtors_aux", "program1", 5),
        ("_fini", "program1", 5),
    ] {
        let is = |span: &&Value| {
            (
                text(span, "function").as_str(),
                text(span, "module").as_str(),
                span["depth"].as_i64(),
            ) == (function, module, Some(depth))
        };
        assert_eq!(spans.iter().filter(is).count(), 1, "{function}: {spans:?}");
    }
}
