//! Arguments.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::input::InputArgs;
use crate::outputs::{OutputArgs, SelectionArgs};

/// Flight recorder and time microscope for Linux programs.
///
/// ptrail records the exact path that a program takes, instruction by instruction, and shows it as
/// a timeline of function calls.
#[derive(Parser)]
#[command(name = "ptrail", version, max_term_width = 100)]
#[command(after_help = "Start with:  ptrail run -- ls /usr")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Attach(AttachArgs),
    Check(CheckArgs),
    Decode(DecodeArgs),
    Info(InfoArgs),
    Open(OpenArgs),
    Pack(PackArgs),
    Dump(DumpArgs),
}

/// Start a program, record it, and write its timeline.
///
/// The program runs with ptrail's own input, output and environment. When it has ended, its trace is
/// decoded and written, and a summary goes to standard error. Ctrl-C goes to the program; if it
/// does not end within two seconds, the recording ends and the program goes on unrecorded.
///
/// Exit status: the program's own (128 + N if signal N killed it); 1 if it could not be recorded
/// or the output could not be written; 2 for wrong usage.
#[derive(Parser)]
pub(crate) struct RunArgs {
    /// Where the trace comes from
    #[arg(long, value_enum, default_value_t = Source::Auto)]
    pub(crate) source: Source,

    /// Record only from here on: a function's symbol, or 0xADDRESS, when it is reached first; the
    /// program runs unrecorded until then
    #[arg(long, value_name = "SPEC")]
    pub(crate) window_start: Option<ptrail_emulate::Start>,

    /// Record the processes that the program starts, too (with `--source qemu`)
    #[arg(long)]
    pub(crate) follow_forks: bool,

    #[command(flatten)]
    pub(crate) recording: RecordingArgs,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub(crate) program: Vec<OsString>,
}

/// Record a running process, and write its timeline.
///
/// The process's first thread is single-stepped, some 35,000 instructions a second, until it ends,
/// `--limit` or `--for` is reached, the snapshots are taken, COMMAND has ended, or Ctrl-C comes; then the
/// process goes on as before. Exit status: COMMAND's, else 0; 1 if it could not be recorded or the output
/// could not be written; 2 for wrong usage.
#[derive(Parser)]
pub(crate) struct AttachArgs {
    /// The process, by its id
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: u32,

    #[command(flatten)]
    pub(crate) recording: RecordingArgs,

    /// Run this when the recording is armed, and record as long as it runs
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What `run` and `attach` have in common.
#[derive(clap::Args)]
pub(crate) struct RecordingArgs {
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,

    /// Clock resolution
    #[arg(long, value_enum, default_value_t = Timing::Cyc)]
    pub(crate) timing: Timing,

    /// A point from which decoding can start every 2^(N + 11) bytes of trace (N from 0 to 15):
    /// more of them cost trace, fewer make a loss reach further
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(0..=15))]
    pub(crate) psb_period: u8,

    /// Write the target of every return, also where it follows from its call
    #[arg(long)]
    pub(crate) no_return_compression: bool,

    /// Keep the capture, a perf.data that `perf script` reads too, as FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_capture: Option<PathBuf>,

    /// Only record: write the capture (`--keep-capture`), no timeline
    #[arg(long, requires = "keep_capture", conflicts_with_all = ["outputs", "formats"])]
    pub(crate) capture_only: bool,

    /// Record at most N instructions; then the program goes on unrecorded
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Take a snapshot, the last of each thread's trace, when this happens: SYMBOL, SYMBOL@return,
    /// SYMBOL>50us (a call that took longer), SYMBOL+OFFSET, FILE:LINE, 0xADDRESS,
    /// uprobe:PATH:SYMBOL, usdt:PROVIDER:NAME, signal:USR1 (to ptrail), exit, crash. May be given several times. Without
    /// a hit, the snapshot is taken at the end
    #[arg(long = "trigger", value_name = "SPEC")]
    pub(crate) triggers: Vec<ptrail_record::Trigger>,

    /// Record on for TIME after the trigger (such as 50us, 1.5ms)
    #[arg(long, value_name = "TIME", value_parser = ptrail_record::duration, requires = "triggers")]
    pub(crate) after: Option<Duration>,

    /// Take up to N snapshots; then the recording ends, and the program goes on
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN, requires = "triggers")]
    pub(crate) snapshots: NonZeroU32,

    /// Keep everything, from start to end (the default without --trigger)
    #[arg(long, conflicts_with = "snapshot_size")]
    pub(crate) full: bool,

    /// Keep only the last SIZE of each thread's trace (bytes, or with K, M, G; with --trigger 4M if
    /// nothing else is said)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) snapshot_size: Option<usize>,

    /// Record for TIME (such as 500ms, 2s), in real time; then the program goes on unrecorded
    #[arg(long = "for", value_name = "TIME", value_parser = ptrail_record::duration)]
    pub(crate) duration: Option<Duration>,

    /// When the recording is armed, write the line `ready` to file descriptor FD and close it
    #[arg(long, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,

    /// Inject faults, for tests: FAULT:RATE, several separated by commas. FAULT is overflow, truncate,
    /// switch or corrupt, RATE its probability for each 4 KiB of trace; or lost-sideband, for each
    /// mapping. The capture's notes tell
    #[arg(long, value_name = "FAULTS")]
    pub(crate) inject: Option<ptrail_emulate::Injection>,

    /// With --inject: the same seed gives the same faults
    #[arg(long, value_name = "N", default_value_t = 0, requires = "inject")]
    pub(crate) seed: u64,

    /// Write the address of every executed instruction to FILE, the recorder's time-stamp counter
    /// behind it to FILE.tsc, and (single-stepping) the stack pointer before it to FILE.sp, as 8
    /// little-endian bytes each: the truth against which a decoder can be checked
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,

    /// Don't show progress
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Print the summary as one line of JSON (on standard error)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what this machine can record, and how to cure what it can't.
#[derive(Parser)]
pub(crate) struct CheckArgs {
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Decode a capture into a timeline.
///
/// INPUT is a perf.data file with Intel PT, as ptrail or `perf record -e intel_pt//u` writes it, or a
/// trace bundle of LLDB; the recorded programs and libraries must still be where they were. A summary
/// goes to standard output.
#[derive(Parser)]
pub(crate) struct DecodeArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) outputs: OutputArgs,

    /// Decode on N threads; the result is the same for any [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Don't show progress
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Print the summary as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what a capture holds: how it was recorded, threads, code and where it is, what is missing.
#[derive(Parser)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Open a timeline or profile in its viewer, in this machine's browser.
///
/// The viewer's page is told to fetch the file from 127.0.0.1, where it is served once, to that page
/// alone; it stays on this machine. Perfetto (.pftrace, .json, .fxt, .fxt.gz), speedscope
/// (.speedscope.json, .folded, .pprof) and the Firefox Profiler (.profile.json, .profile.json.gz).
#[derive(Parser)]
pub(crate) struct OpenArgs {
    /// The file
    pub(crate) file: PathBuf,

    /// Only print the page's address
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// Serve on this port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 9001)]
    pub(crate) port: u16,
}

/// Put a capture and the programs, libraries and debug files that decoding it needs into one archive.
///
/// `ptrail decode`, `info` and `dump` take the archive like a capture, on any machine.
#[derive(Parser)]
pub(crate) struct PackArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Write the archive (a tar file) to FILE [default: INPUT.tar]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Print what a capture holds, one line an item.
#[derive(Parser)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// The packets of the trace: offset, name, payload, address
    #[arg(long, group = "what")]
    pub(crate) packets: bool,

    /// With --packets: also the time at each packet, and how far it may be off
    #[arg(long, requires = "packets")]
    pub(crate) time: bool,

    /// With --packets: only how many there are of each type, and their bytes
    #[arg(long, requires = "packets", conflicts_with = "time")]
    pub(crate) stats: bool,

    /// Every branch that was taken: time, kind, from, to
    #[arg(long, group = "what")]
    pub(crate) branches: bool,

    /// Every instruction that executed: its address
    #[arg(long, group = "what")]
    pub(crate) instructions: bool,

    /// Function spans: begin, duration, depth, instructions, function, in the order of their ends; all,
    /// or what --from, --to, --thread, --function and --min-duration keep
    #[arg(long, group = "what")]
    pub(crate) spans: bool,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// With --instructions: only name, instruction count and FNV-1a 64 digest of each stream
    #[arg(long, requires = "instructions")]
    pub(crate) digest: bool,

    /// With --instructions: the decoder to use
    #[arg(long, value_enum, default_value_t = Engine::Ptrail, requires = "instructions")]
    pub(crate) engine: Engine,

    /// With --instructions: also function, module, inlined functions, source file and line
    #[arg(long, requires = "instructions", conflicts_with = "digest")]
    pub(crate) lines: bool,

    /// Decode on N threads; the result is the same for any [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Source {
    /// The best that this machine has: qemu, else step; the summary says which and why
    Auto,
    /// The software recorder under QEMU's user-mode emulation (package qemu-user): some 100 million
    /// instructions a second, with a virtual clock
    Qemu,
    /// The software recorder by single-stepping (ptrace): some 35,000 instructions a second, with a
    /// virtual clock; needs nothing
    Step,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// ptrail's own
    Ptrail,
    /// Intel's libipt, to compare with (only if ptrail was built with the feature libipt)
    Libipt,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Timing {
    /// To the cycle (largest trace)
    Cyc,
    /// Every 320 ns
    Mtc,
    /// Once every few thousand branches (smallest trace)
    Tsc,
}

impl RecordingArgs {
    /// With triggers, so much of each thread's trace is kept if nothing else is said, bytes.
    const SNAPSHOT_SIZE: usize = 4 << 20;

    /// What is to be kept of each thread's trace; `None`: all.
    pub(crate) fn snapshot_size(&self) -> Option<usize> {
        let ring = !self.full && !self.triggers.is_empty();
        self.snapshot_size
            .or_else(|| ring.then_some(Self::SNAPSHOT_SIZE))
    }

    pub(crate) fn triggers(&self) -> Option<ptrail_record::Triggers> {
        (!self.triggers.is_empty()).then(|| ptrail_record::Triggers {
            triggers: self.triggers.clone(),
            after: self.after.unwrap_or_default(),
            snapshots: self.snapshots,
        })
    }
}

impl From<Timing> for ptrail_emulate::Timing {
    fn from(timing: Timing) -> Self {
        match timing {
            Timing::Cyc => Self::Cyc,
            Timing::Mtc => Self::Mtc,
            Timing::Tsc => Self::Tsc,
        }
    }
}

/// A number of bytes as `N`, `NK`, `NM` or `NG`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let digits = text.strip_suffix(['K', 'M', 'G']).unwrap_or(text);
    let unit = match &text[digits.len()..] {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => 1,
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text:?} is no size, such as 65536, 64K or 4M"))
}
