//! Folded stacks: one line a call path, with what was spent in its innermost function alone.
//!
//! ```text
//! demo;main;parse 1200
//! demo;main;run;[T: 4]::sum 96
//! ```
//!
//! The first frame is the thread's name; threads of one name are one. `.folded` counts nanoseconds,
//! and the first frame says if they are of a virtual clock; `.instructions.folded` counts
//! instructions. Paths in whose innermost function nothing was spent have no line, so calls can't be
//! counted here.
//!
//! `;` in a name becomes `:` (as the usual collapsing scripts do), control characters become
//! spaces, and a frame without a name is `[unnamed]`.

use std::io::{self, Write};

use ptrail_trace::{FunctionId, Track};

use crate::{
    calls::Step,
    profile::{Profile, ThreadPaths},
    text::{clock_note, one_line},
};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Nanoseconds.
    Time,
    /// Instructions.
    Instructions,
}

pub(crate) fn write(
    mut profile: Profile,
    weight: Weight,
    output: &mut impl Write,
) -> io::Result<()> {
    let threads = profile.take_paths(|track: &Track| track.name.clone());
    let frames: Vec<String> = (0..profile.function_count() as u32)
        .map(|number| profile.function(FunctionId(number)))
        .map(|function| frame(function.map_or("", |function| &function.name)))
        .collect();
    let source = profile.recording.map(|recording| recording.source);
    let note = match (weight, source) {
        (Weight::Time, Some(source)) => clock_note(source),
        _ => "",
    };
    for ThreadPaths { track, paths } in threads {
        let mut line = frame(&track.name) + note;
        let mut ends = Vec::new();
        paths.walk(|step| {
            match step {
                Step::Enter(function, own) => {
                    ends.push(line.len());
                    line.push(';');
                    line.push_str(&frames[function.0 as usize]);
                    let value = match weight {
                        Weight::Time => own.time,
                        Weight::Instructions => own.instructions,
                    };
                    if value > 0 {
                        writeln!(output, "{line} {value}")?;
                    }
                }
                Step::Leave(_) => line.truncate(ends.pop().unwrap_or(0)),
            }
            Ok::<_, io::Error>(())
        })?;
    }
    Ok(())
}

fn frame(name: &str) -> String {
    one_line(name).replace(';', ":")
}
