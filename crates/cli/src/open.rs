//! `ptrail open`: hands a file to a viewer in the browser of this machine.
//!
//! The viewers are pages that read files in the browser. They are told to fetch this one from
//! `127.0.0.1`, where it is served once, to them alone: only pages of the viewer's own site may read
//! the answer (CORS), and only requests that name this machine are answered, so that no other site
//! gets at the file by a name that leads here.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ptrail_export::{Format, Packing};

use crate::args::OpenArgs;

/// Bytes of a request's head.
const LONGEST_REQUEST: u64 = 16 << 10;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A viewer on the web.
struct Viewer {
    /// Its site, which may read the answer.
    origin: &'static str,
    /// Its address for a file's address.
    page: fn(&str) -> String,
}

const PERFETTO: Viewer = Viewer {
    origin: "https://ui.perfetto.dev",
    page: |url| format!("https://ui.perfetto.dev/#!/?url={url}"),
};
const SPEEDSCOPE: Viewer = Viewer {
    origin: "https://www.speedscope.app",
    page: |url| format!("https://www.speedscope.app/#profileURL={}", encoded(url)),
};
const FIREFOX: Viewer = Viewer {
    origin: "https://profiler.firefox.com",
    page: |url| format!("https://profiler.firefox.com/from-url/{}", encoded(url)),
};

pub(crate) fn open(args: &OpenArgs) -> Result<()> {
    let path = &args.file;
    let viewer = viewer(path)?;
    // What can't be read is said before a browser opens.
    File::open(path).with_context(|| path.display().to_string())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot serve on {address}; if another program does, choose another --port")
    })?;
    let address = listener.local_addr()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = format!("/{}", encoded(&name));
    let page = (viewer.page)(&format!("http://{address}{target}"));
    let mut out = io::stdout();
    writeln!(out, "{page}")?;
    out.flush()?;
    if !args.no_browser && !browse(&page) {
        writeln!(
            io::stderr(),
            "ptrail: open that address in a browser on this machine"
        )?;
    }
    for stream in listener.incoming() {
        // A browser that goes away is its own business; the next request may come.
        let Ok(stream) = stream else { continue };
        if matches!(
            answer(&stream, address, &target, path, viewer.origin),
            Ok(true)
        ) {
            break;
        }
    }
    Ok(())
}

fn viewer(path: &Path) -> Result<Viewer> {
    match Format::from_path(path) {
        Some(Format::Perfetto | Format::Chrome | Format::Fxt(Packing::Plain | Packing::Gzip)) => {
            Ok(PERFETTO)
        }
        Some(
            Format::Speedscope | Format::FoldedTime | Format::FoldedInstructions | Format::Pprof,
        ) => Ok(SPEEDSCOPE),
        Some(Format::Firefox(_)) => Ok(FIREFOX),
        _ => bail!(
            "{}: no viewer in the browser takes it; those take .pftrace, .json, .fxt, .fxt.gz, .speedscope.json, .folded, .pprof, .profile.json and .profile.json.gz",
            path.display()
        ),
    }
}

/// Whether a browser was asked to open the page.
fn browse(page: &str) -> bool {
    let mut command = Command::new("xdg-open");
    let quiet = command
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Answers a request; the result is whether it got the file.
fn answer(
    stream: &TcpStream,
    here: SocketAddr,
    target: &str,
    file: &Path,
    origin: &str,
) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (method, path, host) = request(stream)?;
    let mut to = stream;
    let head = |status: &str, length: u64| {
        format!(
            "HTTP/1.1 {status}\r\nAccess-Control-Allow-Origin: {origin}\r\n\
             Access-Control-Allow-Private-Network: true\r\nCache-Control: no-store\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        )
    };
    let port = here.port();
    let meant = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    if !meant.contains(&host) {
        to.write_all(head("421 Misdirected Request", 0).as_bytes())?;
        return Ok(false);
    }
    match (method.as_str(), path == target) {
        ("GET" | "HEAD", true) => {
            let mut file = File::open(file)?;
            let length = file.metadata()?.len();
            to.write_all(head("200 OK", length).as_bytes())?;
            if method == "HEAD" {
                return Ok(false);
            }
            io::copy(&mut file, &mut to)?;
            Ok(true)
        }
        ("OPTIONS", true) => {
            to.write_all(head("204 No Content", 0).as_bytes())?;
            Ok(false)
        }
        _ => {
            to.write_all(head("404 Not Found", 0).as_bytes())?;
            Ok(false)
        }
    }
}

/// Method, path and host of a request; its head is read to the end.
fn request(stream: &TcpStream) -> io::Result<(String, String, String)> {
    let mut lines = BufReader::new(stream.take(LONGEST_REQUEST)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut words = first.split(' ').map(str::to_owned);
    let mut host = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((key, value)) = line.split_once(':')
            && key.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_owned();
        }
    }
    let mut word = || words.next().unwrap_or_default();
    Ok((word(), word(), host))
}

/// A text as it may stand in an address.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_where_the_file_is() {
        let url = "http://127.0.0.1:9001/a%20b.pftrace";
        assert_eq!(
            (PERFETTO.page)(url),
            "https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/a%20b.pftrace"
        );
        assert_eq!(
            (FIREFOX.page)(url),
            "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A9001%2Fa%2520b.pftrace"
        );
        assert_eq!(encoded("größe 1.json"), "gr%C3%B6%C3%9Fe%201.json");
        assert!(viewer(Path::new("a.jsonl")).is_err());
    }
}
