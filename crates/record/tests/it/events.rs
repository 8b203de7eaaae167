//! Single events of this kernel.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use ptrail_image::{Image, Named};
use ptrail_record::attr::{Attr, Flags, Sample};
use ptrail_record::event::Event;
use ptrail_record::facts::Facts;
use ptrail_record::trials::Trials;

use crate::target::Target;

#[test]
fn the_trials_agree_with_what_works() {
    let facts = Facts::read("/".as_ref());
    let trials = Trials::run(&facts);
    assert_eq!(trials.trace.is_some(), facts.pmu.is_ok());
    if trials.breakpoint.is_ok() {
        assert!((1..=4).contains(&trials.debug_registers));
        assert!(trials.refresh_again.is_some());
    } else {
        eprintln!("SKIPPED the breakpoints: {:?}", trials.breakpoint);
    }
    // Nothing is left behind: the same again.
    assert_eq!(Trials::run(&facts), trials);
}

/// A uprobe at the file offset that the image gives counts the calls, as a breakpoint at the address does.
#[test]
fn a_uprobe_counts_the_calls() {
    let facts = Facts::read("/".as_ref());
    if !facts.uprobes || !facts.may_admin() {
        eprintln!("SKIPPED: uprobes are for root, on a kernel that has them");
        return;
    }
    let mut target = Target::start();
    let path = target.folder.path().join("target");
    let image = Image::at_path(&path);
    let Named::Functions(landing) = image.functions_named("landing") else {
        panic!("no landing");
    };
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").unwrap();
    let attr = Attr {
        kind: kind.trim().parse().unwrap(),
        config2: image.file_offset(landing[0]).unwrap(),
        sample_period: 1,
        sample_type: Sample::IP,
        flags: Flags::EXCLUDE_KERNEL | Flags::DISABLED,
        ..Attr::default()
    };
    let file = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pid = target.pid() as i32;
    let probe = Event::open_in_file(&attr, &file, pid, -1, None).unwrap();
    assert_eq!(target.does("c 10"), "done");
    assert_eq!(probe.count().unwrap(), 0);
    probe.enable().unwrap();
    assert_eq!(target.does("c 1000"), "done");
    probe.disable().unwrap();
    assert_eq!(target.does("c 10"), "done");
    assert_eq!(probe.count().unwrap(), 1000);
    let nowhere = CString::new("/no/such/file").unwrap();
    let missing = Event::open_in_file(&attr, &nowhere, pid, -1, None).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(2));
}
