//! Where an address is in the program: function, module, source line.

use std::collections::HashMap;

use ptrail_image::{Lines, SourceFrame};
use ptrail_pipeline::{Session, Stream};
use ptrail_pt::{Ip, PerfTime, Picos};
use serde_json::{Value, json};

/// Answers for the addresses of one stream.
pub(super) struct Places<'a> {
    session: &'a Session<'a>,
    pid: u32,
    /// Debug information of the images met so far.
    lines: HashMap<u32, Option<Lines>>,
}

/// A place in the program.
pub(super) struct Place {
    function: String,
    module: String,
    /// Innermost inlined function first, the one that has the code last.
    frames: Vec<SourceFrame>,
}

impl<'a> Places<'a> {
    pub(super) fn new(session: &'a Session<'_>, stream: &Stream<'_>) -> Self {
        Self {
            session,
            pid: stream.pid,
            lines: HashMap::new(),
        }
    }

    /// The place of an address at a time.
    pub(super) fn of(&mut self, ip: Ip, at: Picos) -> Place {
        let timeline = self.session.timeline();
        let now = PerfTime(self.session.base().0 + at.0 / 1000);
        let space = timeline.space(self.pid, now);
        let hit = space.function(ip).map(|hit| timeline.function(hit.id));
        let frames = space.link_address(ip).and_then(|(image, address)| {
            let lines = self.lines.entry(image).or_insert_with(|| {
                let image = timeline.image(image)?;
                image.lines()
            });
            Some(lines.as_ref()?.frames(address))
        });
        Place {
            function: hit
                .as_ref()
                .map_or_else(String::new, |f| f.name.to_string()),
            module: hit
                .as_ref()
                .map_or_else(String::new, |f| f.module.to_owned()),
            frames: frames.unwrap_or_default(),
        }
    }
}

impl Place {
    pub(super) fn text(&self) -> String {
        let module = match self.module.as_str() {
            "" => String::new(),
            module => format!(" ({module})"),
        };
        let mut text = format!("{}{module}", self.function);
        if let Some((_, inlined)) = self.frames.split_last() {
            for frame in inlined.iter().rev() {
                let name = frame.function.as_deref().unwrap_or("?");
                text.push_str(&format!(" > {name}"));
            }
        }
        if let Some(SourceFrame {
            file: Some(file),
            line: Some(line),
            ..
        }) = self.frames.first()
        {
            text.push_str(&format!("  {file}:{line}"));
        }
        text
    }

    /// As fields of an object.
    pub(super) fn json(&self) -> Vec<(String, Value)> {
        let first = self.frames.first();
        let inlined = self
            .frames
            .split_last()
            .map_or(&[][..], |(_, inlined)| inlined);
        let inlined: Vec<_> = inlined.iter().map(|frame| frame.function.clone()).collect();
        vec![
            ("function".into(), json!(self.function)),
            ("module".into(), json!(self.module)),
            ("inlined".into(), json!(inlined)),
            ("file".into(), json!(first.and_then(|f| f.file.clone()))),
            ("line".into(), json!(first.and_then(|f| f.line))),
        ]
    }
}
