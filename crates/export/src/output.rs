//! The file being written: temporary until finished, with room for late insertions.
//!
//! Events are appended. What must stand further to the front but is known only later is handed in
//! with [`Output::insert`]; [`Output::finish`] then writes the file once more with the insertions
//! in their places.

use std::{
    fs::{File, Permissions},
    io::{self, BufWriter, Read as _, Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flate2::write::GzEncoder;
use ptrail_trace::{FunctionId, SinkError, TrackId};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::NamedTempFile;

/// What is packed with Zstandard at once.
const PIECE: u64 = 1 << 20;

/// Size of the write buffer.
const BUFFER: usize = 256 << 10;

/// How the finished file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// Zstandard, a frame for each MiB.
    Zstd,
}

/// Where the finished file goes.
enum Destination {
    /// Takes the final name by renaming.
    File { folder: PathBuf, path: PathBuf },
    /// Exists and is no plain file, so it must not be replaced: gets a copy.
    Device(PathBuf),
}

/// Bytes to be put in at `place`.
struct Insertion {
    place: u64,
    start: usize,
    len: usize,
}

/// An output file in the making.
pub(crate) struct Output {
    /// The path as the user gave it, for messages.
    path: PathBuf,
    destination: Destination,
    packing: Packing,
    /// `None` after an error and when finished.
    file: Option<BufWriter<NamedTempFile>>,
    position: u64,
    insertions: Vec<Insertion>,
    inserted: Vec<u8>,
}

impl Output {
    pub(crate) fn create(path: &Path) -> Result<Self, SinkError> {
        Self::packed(path, Packing::Plain)
    }

    /// One that is packed when it is finished.
    pub(crate) fn packed(path: &Path, packing: Packing) -> Result<Self, SinkError> {
        let opened = Destination::of(path).and_then(|to| Ok((to.temporary()?, to)));
        let (file, destination) = opened.map_err(|source| SinkError::Io {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            destination,
            packing,
            file: Some(BufWriter::with_capacity(BUFFER, file)),
            position: 0,
            insertions: Vec::new(),
            inserted: Vec::new(),
        })
    }

    /// Number of bytes appended so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// A nameless temporary file, where there is room for the output.
    pub(crate) fn scratch(&self) -> Result<File, SinkError> {
        match &self.destination {
            Destination::File { folder, .. } => tempfile::tempfile_in(folder),
            Destination::Device(_) => tempfile::tempfile(),
        }
        .map_err(|source| self.error(source))
    }

    /// Something that belongs to the output could not be written. The output is given up.
    pub(crate) fn failed(&mut self, source: io::Error) -> SinkError {
        self.file = None;
        self.error(source)
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let Some(file) = &mut self.file else {
            return Err(self.error(closed()));
        };
        if let Err(source) = file.write_all(bytes) {
            self.file = None;
            return Err(self.error(source));
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Puts bytes in front of what was appended when [`Output::position`] was `place`, and in
    /// front of what was inserted there before.
    pub(crate) fn insert(&mut self, place: u64, bytes: &[u8]) {
        self.insertions.push(Insertion {
            place,
            start: self.inserted.len(),
            len: bytes.len(),
        });
        self.inserted.extend_from_slice(bytes);
    }

    /// The stream refers to a track that it did not announce. The output is given up, as after
    /// every other call out of order.
    pub(crate) fn unknown_track(&mut self, track: TrackId) -> SinkError {
        self.misuse(misuse::unknown_track(track))
    }

    pub(crate) fn unknown_function(&mut self, function: FunctionId) -> SinkError {
        self.misuse(misuse::unknown_function(function))
    }

    pub(crate) fn track_out_of_order(&mut self, track: TrackId) -> SinkError {
        self.misuse(misuse::track_out_of_order(track))
    }

    pub(crate) fn nothing_open(&mut self, track: TrackId) -> SinkError {
        self.misuse(misuse::nothing_open(track))
    }

    pub(crate) fn still_open(&mut self, track: TrackId) -> SinkError {
        self.misuse(misuse::still_open(track))
    }

    fn misuse(&mut self, what: String) -> SinkError {
        self.file = None;
        SinkError::Misuse {
            path: self.path.clone(),
            what,
        }
    }

    /// Completes the file and puts it in place.
    pub(crate) fn finish(&mut self) -> Result<(), SinkError> {
        let Some(file) = self.file.take() else {
            return Err(self.error(closed()));
        };
        self.complete(file).map_err(|source| self.error(source))
    }

    fn complete(&mut self, file: BufWriter<NamedTempFile>) -> io::Result<()> {
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if !self.insertions.is_empty() {
            file = self.with_insertions(file)?;
        }
        if self.packing != Packing::Plain {
            file = self.pack(file)?;
        }
        match &self.destination {
            Destination::File { path, .. } => {
                file.persist(path)?;
            }
            Destination::Device(path) => {
                let mut device = File::options().write(true).open(path)?;
                file.rewind()?;
                io::copy(file.as_file_mut(), &mut device)?;
            }
        }
        Ok(())
    }

    fn with_insertions(&mut self, file: NamedTempFile) -> io::Result<NamedTempFile> {
        let mut from = file.into_file();
        from.rewind()?;
        let whole = self.destination.temporary()?;
        let mut to = BufWriter::with_capacity(BUFFER, whole.as_file());
        let mut insertions = std::mem::take(&mut self.insertions);
        insertions.reverse();
        insertions.sort_by_key(|insertion| insertion.place);
        let mut copied = 0;
        for Insertion { place, start, len } in insertions {
            copied += io::copy(&mut (&mut from).take(place - copied), &mut to)?;
            to.write_all(&self.inserted[start..start + len])?;
        }
        io::copy(&mut from, &mut to)?;
        to.flush()?;
        drop(to);
        Ok(whole)
    }

    fn pack(&self, file: NamedTempFile) -> io::Result<NamedTempFile> {
        let mut from = file.into_file();
        from.rewind()?;
        let packed = self.destination.temporary()?;
        let mut to = BufWriter::with_capacity(BUFFER, packed.as_file());
        match self.packing {
            Packing::Plain => drop(io::copy(&mut from, &mut to)?),
            Packing::Gzip => {
                let mut gzip = GzEncoder::new(&mut to, flate2::Compression::default());
                io::copy(&mut from, &mut gzip)?;
                gzip.finish()?;
            }
            Packing::Zstd => loop {
                let mut piece = Vec::new();
                if (&mut from).take(PIECE).read_to_end(&mut piece)? == 0 {
                    break;
                }
                to.write_all(&compress_to_vec(&*piece, CompressionLevel::Fastest))?;
            },
        }
        to.flush()?;
        drop(to);
        Ok(packed)
    }

    fn error(&self, source: io::Error) -> SinkError {
        SinkError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

/// For encoders that write by themselves.
impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else {
            return Err(closed());
        };
        let written = io::Write::write(file, bytes)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.flush(),
            None => Err(closed()),
        }
    }
}

impl Destination {
    fn of(path: &Path) -> io::Result<Self> {
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => Ok(Self::Device(path.to_owned())),
            // Through a symbolic link to the file itself: the link stays.
            Ok(_) => Self::file(path.canonicalize()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::file(path.to_owned()),
            Err(error) => Err(error),
        }
    }

    fn file(path: PathBuf) -> io::Result<Self> {
        let folder = match path.parent() {
            None => return Err(io::ErrorKind::InvalidFilename.into()),
            Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
            Some(folder) => folder.to_owned(),
        };
        Ok(Self::File { folder, path })
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        // The usual mode, less the umask; the crate's own default would hide the file from the
        // user's group for good.
        let permissions = Permissions::from_mode(0o666);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".ptrail-").permissions(permissions);
        match self {
            Self::File { folder, .. } => builder.tempfile_in(folder),
            Self::Device(_) => builder.tempfile(),
        }
    }
}

/// What can be wrong with a call.
pub(crate) mod misuse {
    use ptrail_trace::{FunctionId, TrackId};

    pub(crate) fn unknown_track(track: TrackId) -> String {
        format!("track {} was not announced", track.0)
    }

    pub(crate) fn unknown_function(function: FunctionId) -> String {
        format!("function {} was not announced", function.0)
    }

    pub(crate) fn track_out_of_order(track: TrackId) -> String {
        format!("track {} was announced out of order", track.0)
    }

    pub(crate) fn nothing_open(track: TrackId) -> String {
        format!("a span closes on track {} where none is open", track.0)
    }

    pub(crate) fn still_open(track: TrackId) -> String {
        let track = track.0;
        format!("a caller is found late on track {track} while functions are open")
    }
}

pub(crate) fn closed() -> io::Error {
    io::Error::other("the output is already finished or has failed before")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn insertions_stand_before_their_place_and_before_earlier_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = Output::create(&path).unwrap();
        output.write(b"head ").unwrap();
        let first = output.position();
        output.write(b"one ").unwrap();
        let second = output.position();
        output.write(b"two ").unwrap();
        output.insert(second, b"c ");
        output.insert(first, b"b ");
        output.insert(first, b"a ");
        output.insert(output.position(), b"end");
        output.insert(0, b"start ");
        output.finish().unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "start head a b one c two end"
        );
        assert_eq!(names(dir.path()), ["out"]);
    }

    #[test]
    fn nothing_is_left_without_finish_and_the_old_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, "old").unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write(&vec![b'x'; 3 * BUFFER]).unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(output);
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    }

    #[test]
    fn after_misuse_nothing_can_be_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = Output::create(&path).unwrap();
        let error = output.misuse("track 3 was not announced".to_owned());
        assert!(matches!(error, SinkError::Misuse { .. }));
        assert!(
            error
                .to_string()
                .ends_with("out: track 3 was not announced"),
            "{error}"
        );
        assert!(output.write(b"x").is_err());
        assert!(output.finish().is_err());
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let mut output = Output::create(Path::new("/dev/null")).unwrap();
        output.write(b"x").unwrap();
        output.insert(0, b"y");
        output.finish().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }

    #[test]
    fn a_link_stays_a_link_and_a_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut output = Output::create(&link).unwrap();
        output.write(b"new").unwrap();
        output.finish().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        assert!(Output::create(dir.path()).is_err());
        assert!(Output::create(&dir.path().join("no-folder/out")).is_err());
    }
}
