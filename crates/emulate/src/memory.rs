//! Reading a process's memory.

use std::io;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// Reads memory; returns how many bytes could be read.
pub(crate) fn read(pid: u32, address: u64, buffer: &mut [u8]) -> usize {
    let whole = read_once(pid, address, buffer);
    if whole == buffer.len() {
        return whole;
    }
    // A read that touches a missing page fails as a whole: take what lies before the page.
    let to_page_end = (0x1000 - (address as usize & 0xfff)).min(buffer.len());
    read_once(pid, address, &mut buffer[..to_page_end])
}

fn read_once(pid: u32, address: u64, buffer: &mut [u8]) -> usize {
    let remote = [RemoteIoVec {
        base: address as usize,
        len: buffer.len(),
    }];
    let pid = Pid::from_raw(pid as i32);
    process_vm_readv(pid, &mut [io::IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}
