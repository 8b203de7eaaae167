//! `ptrail info` on our own captures and on other people's.

use std::path::Path;

use serde_json::Value;

use crate::recorded::{Recorded, ptrail};
use crate::reference::{folder, json};

fn info(input: &Path, options: &[&str]) -> String {
    let output = ptrail()
        .arg("info")
        .arg(input)
        .args(options)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    String::from_utf8(output.stdout).unwrap()
}

fn info_json(input: &Path) -> Value {
    serde_json::from_str(&info(input, &["--json"])).unwrap()
}

#[test]
fn a_recording_of_our_own() {
    let recorded = Recorded::new(&[], &["/bin/true"], "");
    let found = info_json(&recorded.capture());
    assert_eq!(found["source"], "software");
    assert_eq!(found["command"][0], "/bin/true");
    assert_eq!(found["threads"].as_array().unwrap().len(), 1);
    assert_eq!(found["missing"], Value::Array(Vec::new()));
    let images = found["images"].as_array().unwrap();
    let has = |end: &str| {
        images
            .iter()
            .any(|i| i["path"].as_str().unwrap().ends_with(end))
    };
    assert!(has("/true") && has("libc.so.6"), "{images:?}");
    let usable = |image: &Value| image["problem"].is_null() || image["path"] == "[vsyscall]";
    assert!(images.iter().all(usable), "{images:?}");

    let text = info(&recorded.capture(), &[]);
    for part in [
        "recorded  the software recorder (engine step)",
        "command   /bin/true",
        "end       the program exited with status 0",
        "  true",
        "  found\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn quippers_files() {
    let Some(folder) = folder("quipper") else {
        return;
    };
    for file in json(&folder.join("reference.json"))["files"]
        .as_array()
        .unwrap()
    {
        let path = folder.join(file["file"].as_str().unwrap());
        let found = info_json(&path);
        assert_eq!(found["machine"]["os_release"], "4.14.18");
        assert_eq!(found["machine"]["cpuid"], "GenuineIntel,6,78,3");
        let buffers = file["auxtrace"].as_array().unwrap();
        let streams = found["streams"].as_array().unwrap();
        let of =
            |list: &[Value], key: &str| list.iter().map(|v| v[key].clone()).collect::<Vec<_>>();
        assert_eq!(of(streams, "bytes"), of(buffers, "size"));
        let threads = found["threads"].as_array().unwrap();
        let switches: u64 = threads
            .iter()
            .map(|t| t["switches"].as_u64().unwrap())
            .sum();
        assert_eq!(switches, file["records_by_type"]["SWITCH_CPU_WIDE"]);
        let echo = threads
            .iter()
            .find(|t| t["tid"] == buffers[0]["tid"])
            .unwrap();
        assert_eq!(echo["names"].as_array().unwrap().last().unwrap(), "echo");
        let [first, last] = [0, 1].map(|i| found["time_ns"][i].as_u64().unwrap());
        assert!(first < last && last - first < 1_000_000_000);
        assert_eq!(found["left_out"]["9"], file["records_by_type"]["SAMPLE"]);
        // None of the recorded files is here, and each says what would help.
        for image in found["images"].as_array().unwrap() {
            let path = image["path"].as_str().unwrap();
            if path != "[vdso]" && !Path::new(path).exists() {
                assert!(image["problem"].is_string(), "{image}");
            }
        }
        let text = info(&path, &[]);
        for part in ["--kcore", "--sysroot", "NOT USABLE", "MTC every 2^3"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn a_bundle() {
    let Some(folder) = folder("lldb-traces") else {
        return;
    };
    let found = info_json(&folder.join("intelpt-multi-core-trace"));
    let streams = found["streams"].as_array().unwrap();
    assert_eq!(streams[0]["owner"], "CPU 45");
    assert_eq!(streams[1]["bytes"], 5738);
    assert_eq!(found["clock"]["mult"], 1_076_264_588);
    let image = &found["images"][0];
    assert_eq!(
        image["build_id"],
        "aefb0d59233f80ff6d3c4ded498534cf11017b3b"
    );
    assert!(image["problem"].is_null());
}
