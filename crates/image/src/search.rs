//! Where files are looked for: the recorded path is only where they once were.
//!
//! For a file with a recorded path and build-id these places are tried in turn:
//!
//! 1. the path with a prefix replaced ([`Search::moved`]),
//! 2. under the other machine's root ([`Search::sysroot`]),
//! 3. the path itself,
//! 4. by build-id: perf's cache (`~/.debug/.build-id/ab/cdef…/elf`, as `perf buildid-cache` and `perf
//!    record` fill it), `/usr/lib/.build-id/ab/cdef…` as Fedora has it,
//! 5. by build-id from a debuginfod server, if asked to.
//!
//! The first that is the recorded build wins.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::file::hex;

/// Where to look for files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Prefixes of recorded paths and what to put in their place.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Folder that holds a copy of the recorded machine's files.
    pub sysroot: Option<PathBuf>,
    /// Take a file although its build-id is not the recorded one.
    pub any_build: bool,
    /// Folders of separate debug files.
    pub debug_roots: Vec<PathBuf>,
    /// perf's caches of files by build-id.
    pub caches: Vec<PathBuf>,
    /// Ask debuginfod servers, by the program `debuginfod-find`, which knows where they are and keeps
    /// what it got. Nothing but build-ids is sent.
    pub debuginfod: bool,
}

impl Search {
    /// What this machine's environment says: perf's cache in the home folder, `/usr/lib/debug`,
    /// debuginfod if `DEBUGINFOD_URLS` is set.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            debug_roots: vec![PathBuf::from("/usr/lib/debug")],
            caches: set("HOME")
                .map(|home| Path::new(&home).join(".debug"))
                .into_iter()
                .collect(),
            debuginfod: set("DEBUGINFOD_URLS").is_some(),
            ..Self::default()
        }
    }

    /// The first of the places where a file without a build-id is.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<PathBuf> {
        let mut places = self.places(path, None).into_iter();
        places.find(|place| place.is_file())
    }

    /// Places for a file, best first; those that are only asked for at need are not among them.
    pub(crate) fn places(&self, path: &Path, build_id: Option<&[u8]>) -> Vec<PathBuf> {
        let moved = self.moved.iter().filter_map(|(from, to)| {
            let rest = path.strip_prefix(from).ok()?;
            // `to` may be a file itself.
            Some(match rest.as_os_str().is_empty() {
                true => to.clone(),
                false => to.join(rest),
            })
        });
        let mut places: Vec<PathBuf> = moved.collect();
        if let Some(root) = &self.sysroot {
            places.push(root.join(path.strip_prefix("/").unwrap_or(path)));
        }
        places.push(path.to_owned());
        if let Some((first, rest)) = build_id.and_then(<[u8]>::split_first) {
            let name = format!(".build-id/{}/{}", hex(&[*first]), hex(rest));
            for cache in &self.caches {
                places.push(cache.join(&name).join("elf"));
                // perf before 4.10 linked to the file itself.
                places.push(cache.join(&name));
            }
            places.push(Path::new("/usr/lib").join(&name));
        }
        places
    }

    /// The executable or the debug file with this build-id from a server; a message if that can't be
    /// asked.
    pub(crate) fn fetch(&self, what: Fetched, build_id: &[u8]) -> Option<PathBuf> {
        if !self.debuginfod {
            return None;
        }
        let kind = match what {
            Fetched::Executable => "executable",
            Fetched::DebugInfo => "debuginfo",
        };
        let output = Command::new("debuginfod-find")
            .args([kind, &hex(build_id)])
            .output()
            .ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        let path = Path::new(path.trim_end());
        (output.status.success() && path.is_absolute()).then(|| path.to_owned())
    }
}

/// What a debuginfod server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    Executable,
    DebugInfo,
}

/// A build-id without the zeros that perf pads it with; `None` if it is nothing but zeros, which
/// perf writes where it found none.
pub(crate) fn known_build_id(recorded: Option<&[u8]>) -> Option<&[u8]> {
    recorded.filter(|id| id.iter().any(|&byte| byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_their_order() {
        let search = Search {
            moved: vec![
                ("/opt/app".into(), "/home/me/build".into()),
                ("/opt/app/bin/tool".into(), "/tmp/tool".into()),
                ("/opt/ap".into(), "/no".into()),
            ],
            sysroot: Some("/mnt/root".into()),
            caches: vec!["/home/me/.debug".into()],
            ..Search::default()
        };
        let places = search.places(Path::new("/opt/app/bin/tool"), Some(&[0xab, 0xcd, 0xef]));
        let expected = [
            "/home/me/build/bin/tool",
            "/tmp/tool",
            "/mnt/root/opt/app/bin/tool",
            "/opt/app/bin/tool",
            "/home/me/.debug/.build-id/ab/cdef/elf",
            "/home/me/.debug/.build-id/ab/cdef",
            "/usr/lib/.build-id/ab/cdef",
        ];
        assert_eq!(places, expected.map(PathBuf::from));
    }
}
