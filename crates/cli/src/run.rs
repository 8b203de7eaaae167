//! `ptrail run` and `ptrail attach`: record, decode, write.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ptrail_emulate::{
    End, Engine, Error, Outcome, Program, Qemu, Request, Settings, Subject, Window, record,
};
use ptrail_perfdata::Capture;
use ptrail_pipeline::Session;
use ptrail_record::{Ready, Trigger, Unresolved};

use crate::args::{AttachArgs, RecordingArgs, RunArgs, Source};
use crate::occasion::Occasion;
use crate::outputs::Target;
use crate::progress::Line;
use crate::report;
use crate::write::write;

pub(crate) fn run(args: RunArgs) -> Result<ExitCode> {
    let program = Program::find(args.program.clone())?;
    look_for(&args.recording.triggers, &program.path)?;
    let (engine, why) = choose(args.source, &program)?;
    let name = program.args.first().cloned().unwrap_or_default();
    let always = Occasion::new(Vec::new());
    record_and_write(&args.recording, &name, &always, |request| Request {
        subject: Subject::Program(&program, engine),
        window: Window {
            start: args.window_start.clone(),
            ..request.window
        },
        follow_forks: args.follow_forks,
        note: why,
        ..request
    })
}

pub(crate) fn attach(args: AttachArgs) -> Result<ExitCode> {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", args.pid)).unwrap_or_default();
    let name = OsString::from(name.trim_end());
    let occasion = Occasion::new(args.command);
    let code = record_and_write(&args.recording, &name, &occasion, |request| Request {
        subject: Subject::Process(args.pid),
        ..request
    })?;
    Ok(occasion.end()?.unwrap_or(code))
}

/// Records what `subject` makes of a request, decodes it, and writes it.
fn record_and_write<'a>(
    args: &RecordingArgs,
    name: &OsStr,
    occasion: &Occasion,
    subject: impl FnOnce(Request<'a>) -> Request<'a>,
) -> Result<ExitCode> {
    let targets = if args.capture_only {
        Vec::new()
    } else {
        let name = Path::new(name).file_name().unwrap_or("ptrail".as_ref());
        args.outputs.targets(name)?
    };
    // A wrong one is said before any work is done.
    args.outputs.selection.selection()?;
    for target in &targets {
        check_folder(&target.path)?;
    }
    let mut ready = match args.ready_fd {
        Some(descriptor) => Some(
            Ready::take(descriptor)
                .with_context(|| format!("--ready-fd {descriptor}: no descriptor to write to"))?,
        ),
        None => None,
    };
    let place = CapturePlace::new(args.keep_capture.as_deref())?;
    let request = subject(Request {
        subject: Subject::Process(0),
        settings: Settings {
            timing: args.timing.into(),
            return_compression: !args.no_return_compression,
            psb_freq: args.psb_period,
        },
        capture: place.path.clone(),
        truth: args.truth.clone(),
        window: Window {
            start: None,
            limit: args.limit,
        },
        snapshot_size: args.snapshot_size(),
        triggers: args.triggers(),
        duration: args.duration,
        inject: args.inject.clone().map(|mut inject| {
            inject.seed = args.seed;
            inject
        }),
        follow_forks: false,
        note: None,
    });
    let outcome = {
        let mut line = Line::new(args.quiet);
        record(&request, &mut |progress| {
            if let Some(ready) = ready.take() {
                ready.tell();
            }
            occasion.begin();
            line.recording(progress.instructions, progress.elapsed);
        })?
    };
    let result = if args.capture_only {
        tell_captured(&outcome, &place.path)
    } else {
        write_timeline(args, &place.path, &targets)
    };
    if let Err(error) = result {
        let kept = place.keep();
        return Err(error.context(format!("the recording is kept in {}, but", kept.display())));
    }
    Ok(exit_code(outcome.end))
}

/// Says before the program runs what its own file says of the triggers: it may be a libraries'
/// function, or a misspelt one.
fn look_for(triggers: &[Trigger], program: &Path) -> Result<()> {
    for trigger in triggers {
        match trigger.look_in(program) {
            Ok(()) => {}
            Err(why @ (Unresolved::NoFunction { .. } | Unresolved::NoSource)) => say(&format!(
                "ptrail: --trigger {trigger}: {why}; libraries are looked at when they are loaded\n"
            )),
            Err(why) => bail!("--trigger {trigger}: {why}"),
        }
    }
    Ok(())
}

/// The engine to use; and if the choice was left to ptrail, which it is and why.
fn choose(source: Source, program: &Program) -> Result<(Engine, Option<String>)> {
    match (source, Qemu::find(program)) {
        (Source::Step, _) => Ok((Engine::Step, None)),
        (Source::Qemu, found) => {
            found?;
            Ok((Engine::Qemu, None))
        }
        (Source::Auto, Ok(_)) => Ok((
            Engine::Qemu,
            Some("engine qemu was chosen: it is here, and much faster than step".into()),
        )),
        (Source::Auto, Err(Error::NoQemu { why })) => {
            Ok((Engine::Step, Some(format!("engine step was chosen: {why}"))))
        }
        (Source::Auto, Err(error)) => Err(error.into()),
    }
}

fn write_timeline(args: &RecordingArgs, capture: &Path, targets: &[Target]) -> Result<()> {
    let capture = Capture::open(capture)?;
    let session = Session::new(&capture)?;
    let report = report::Report {
        written: &write(&session, targets, &args.outputs, args.quiet)?,
        extra: capture.extra.as_ref(),
        targets,
    };
    let text = if args.json {
        report.json()
    } else {
        report.text()
    };
    say(&text);
    Ok(())
}

fn tell_captured(outcome: &Outcome, capture: &Path) -> Result<()> {
    let mut text = format!(
        "recorded  {} instructions\n",
        indicatif::HumanCount(outcome.instructions)
    );
    for note in &outcome.notes {
        text += &format!("note      {note}\n");
    }
    text += &format!(
        "written   {}\nnext      ptrail decode {}\n",
        capture.display(),
        capture.display()
    );
    say(&text);
    Ok(())
}

/// Messages go to standard error: standard output is the program's.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says before the program runs that an output can't be written.
fn check_folder(output: &Path) -> Result<()> {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let what = || {
        format!(
            "cannot write {}: the folder {}",
            output.display(),
            folder.display()
        )
    };
    tempfile::tempfile_in(folder).map(drop).with_context(what)
}

/// Where the capture is written: where the user wants it, or a folder that goes away.
struct CapturePlace {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl CapturePlace {
    fn new(keep: Option<&Path>) -> Result<Self> {
        if let Some(path) = keep {
            check_folder(path)?;
            return Ok(Self {
                path: path.to_path_buf(),
                temporary: None,
            });
        }
        let folder = tempfile::Builder::new()
            .prefix("ptrail-")
            .tempdir()
            .context("temporary folder")?;
        Ok(Self {
            path: folder.path().join("perf.data"),
            temporary: Some(folder),
        })
    }

    /// Keeps it whatever comes, and says where.
    fn keep(self) -> PathBuf {
        if let Some(folder) = self.temporary {
            let _ = folder.keep();
        }
        self.path
    }
}

/// The program's own exit status, or 128 + the signal's number, as shells have it.
fn exit_code(end: End) -> ExitCode {
    match end {
        End::Exited(status) => ExitCode::from(status as u8),
        End::GoesOn => ExitCode::SUCCESS,
        End::Killed(signal) => ExitCode::from(128u8.wrapping_add(signal as u8)),
    }
}
