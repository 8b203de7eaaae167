//! `ptrail open`: a file is served to its viewer's page, once, and to nobody else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::recorded::ptrail;

/// The command, and the address that it printed.
fn start(file: &Path) -> (Child, String) {
    let mut child = ptrail()
        .args(["open", "--no-browser", "--port", "0"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut page = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut page)
        .unwrap();
    (child, page.trim().to_owned())
}

/// Head and body of an answer.
fn ask(place: &str, method: &str, path: &str, host: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(place).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap(), body)
}

#[test]
fn a_file_is_handed_to_its_page_and_to_no_other() {
    let folder = tempfile::tempdir().unwrap();
    for (name, page_start, origin) in [
        (
            "a b.pftrace",
            "https://ui.perfetto.dev/#!/?url=",
            "https://ui.perfetto.dev",
        ),
        (
            "a b.fxt.gz",
            "https://ui.perfetto.dev/#!/?url=",
            "https://ui.perfetto.dev",
        ),
        (
            "a b.speedscope.json",
            "https://www.speedscope.app/#profileURL=",
            "https://www.speedscope.app",
        ),
        (
            "a b.profile.json",
            "https://profiler.firefox.com/from-url/",
            "https://profiler.firefox.com",
        ),
    ] {
        let file = folder.path().join(name);
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&file, &content).unwrap();
        let (mut child, page) = start(&file);
        let url = page
            .strip_prefix(page_start)
            .unwrap_or_else(|| panic!("{page}"));
        let url = url
            .replace("%3A", ":")
            .replace("%2F", "/")
            .replace("%25", "%");
        let (place, path) = url
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let path = format!("/{path}");
        assert_eq!(path, format!("/{}", name.replace(' ', "%20")));
        // By a name that leads here from elsewhere, nothing; nor any other file.
        let (head, body) = ask(place, "GET", &path, "rebound.example");
        assert!(
            head.starts_with("HTTP/1.1 421 ") && body.is_empty(),
            "{head}"
        );
        let (head, body) = ask(place, "GET", "/etc/passwd", place);
        assert!(
            head.starts_with("HTTP/1.1 404 ") && body.is_empty(),
            "{head}"
        );
        // What a browser asks first.
        let (head, _) = ask(place, "OPTIONS", &path, place);
        assert!(
            head.contains("Access-Control-Allow-Private-Network: true\r\n"),
            "{head}"
        );
        let (head, body) = ask(place, "GET", &path, place);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let allowed = format!("\r\nAccess-Control-Allow-Origin: {origin}\r\n");
        assert!(head.contains(&allowed), "{head}");
        assert!(body == content);
        assert!(
            child.wait().unwrap().success(),
            "it ends when the file is handed over"
        );
    }
}

#[test]
fn what_no_page_takes_is_refused() {
    let output = ptrail().args(["open", "a.jsonl"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && message.contains("those take .pftrace"),
        "{message}"
    );
    let output = ptrail()
        .args(["open", "/no/such.pftrace"])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("/no/such.pftrace: No such file"),
        "{message}"
    );
}
