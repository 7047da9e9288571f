//! Checks of where commands may write: one rule for every output named by an option.
//!
//! An output must not be inside an artifact of gsplit (a dataset, a checkpoint, a packed dataset,
//! an export), must not be read by the same command or be another of its outputs, and replaces only
//! a file that gsplit wrote there before, unless `--force` is given. An output is named by its own
//! path, not by a link to it; the folders around it may be links. Paths are compared as the system
//! resolves them, and existing files by identity, so that hard links count too.
//!
//! All checks run before the work. Folders that become artifacts are left to
//! [`staging`](gsplit_store::staging), which recognises its own artifacts when it replaces them;
//! here only their contents are checked.

use std::fs::{self, Metadata};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};
use gsplit_store::open_file;
use gsplit_store::staging::{Target, artifact_around, tidy};

use crate::ui::usage;

/// Paths that a command reads or is about to write.
#[derive(Default)]
pub struct Outputs {
    inputs: Vec<Place>,
    outputs: Vec<Place>,
    /// Whether the command was given `--force`; `None` if it has no such option.
    force: Option<bool>,
}

/// A path with its name in messages.
struct Place {
    name: String,
    path: PathBuf,
    /// The path as the system resolves it.
    real: PathBuf,
    /// Whether other files may be inside it.
    is_shared: bool,
}

/// Returns whether the first line of a file shows that gsplit wrote it.
pub type Known = fn(&str) -> bool;

impl Outputs {
    /// Creates an empty list, for a command that has `--force`.
    pub fn new(force: bool) -> Self {
        Self { force: Some(force), ..Self::default() }
    }

    /// Adds `path`, which the command reads.
    pub fn reads(mut self, name: &str, path: &Path) -> Self {
        self.inputs.push(Place::new(name, path, true));
        self
    }

    /// Adds the file at `path`, which will be written as a whole. An existing file is replaced with
    /// `--force`, or if `known` accepts it.
    pub fn file(&mut self, option: &str, path: &Path, known: Option<Known>) -> Result<()> {
        let found = expect_no_link(option, path)?;
        self.add(Place::new(option, path, false), false)?;
        tidy(&Target::file(path));
        found.map_or(Ok(()), |found| self.check_found(option, path, &found, known))
    }

    /// Adds the folder at `path`, which will become an artifact.
    pub fn artifact(&mut self, option: &str, path: &Path) -> Result<()> {
        self.add(Place::new(option, path, false), false)
    }

    /// Adds the folder at `path`, into which files are written next to other files, which stay.
    pub fn folder(&mut self, option: &str, path: &Path) -> Result<()> {
        expect_no_link(option, path)?;
        self.add(Place::new(option, path, true), true)
    }

    fn add(&mut self, place: Place, itself_too: bool) -> Result<()> {
        let Place { name, path, real, .. } = &place;
        let shown = path.display();
        let outermost = if itself_too { Some(real.as_path()) } else { real.parent() };
        if let Some((artifact, document)) = outermost.and_then(artifact_around) {
            let artifact = artifact.display();
            return Err(usage(format!(
                "{name} {shown}: lies in {artifact}, which gsplit made ({document}): name a place \
                 outside"
            )));
        }
        if let Some(input) = self.inputs.iter().find(|input| place.would_replace(input)) {
            let (read, by) = (input.path.display(), &input.name);
            return Err(usage(format!(
                "{name} {shown}: would replace {read}, which is read ({by}): name another path"
            )));
        }
        if let Some(other) = self.outputs.iter().find(|other| place.collides_with(other)) {
            return Err(usage(format!(
                "{name} {shown}: is where {} writes: name another path",
                other.name
            )));
        }
        self.outputs.push(place);
        Ok(())
    }

    fn check_found(
        &self,
        option: &str,
        path: &Path,
        found: &Metadata,
        known: Option<Known>,
    ) -> Result<()> {
        let shown = path.display();
        if !found.is_file() {
            bail!("{option} {shown}: is there, and no plain file: name another path");
        }
        let is_own =
            || known.is_some_and(|known| first_line(path).is_some_and(|line| known(&line)));
        if self.force != Some(true) && found.len() > 0 && !is_own() {
            let whose = if known.is_some() { ", and gsplit did not write it" } else { "" };
            let remedy =
                if self.force.is_some() { "pass --force to replace it" } else { "remove it" };
            bail!("{option} {shown}: is there already{whose}: name another path, or {remedy}");
        }
        Ok(())
    }
}

/// Metadata of `path`. A link is refused, since it may lead to somebody else's files.
fn expect_no_link(option: &str, path: &Path) -> Result<Option<Metadata>> {
    // With a slash at the end the system would follow the link.
    let found = fs::symlink_metadata(path.components().collect::<PathBuf>()).ok();
    if found.as_ref().is_some_and(Metadata::is_symlink) {
        bail!("{option} {}: is a link: name what it points to, or remove it", path.display());
    }
    Ok(found)
}

impl Place {
    fn new(name: &str, path: &Path, is_shared: bool) -> Self {
        Self { name: name.into(), path: path.into(), real: resolve(path), is_shared }
    }

    /// Whether writing this output would remove or overwrite `input`.
    fn would_replace(&self, input: &Self) -> bool {
        !self.is_shared
            && (input.real.starts_with(&self.real) || is_same_file(&self.real, &input.real))
    }

    fn collides_with(&self, other: &Self) -> bool {
        let within =
            |outer: &Self, inner: &Self| !outer.is_shared && inner.real.starts_with(&outer.real);
        within(self, other) || within(other, self) || is_same_file(&self.real, &other.real)
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let file = |path| {
        fs::metadata(path).ok().filter(Metadata::is_file).map(|found| (found.dev(), found.ino()))
    };
    file(a).is_some_and(|a| file(b) == Some(a))
}

/// `path` without links, `.` and `..`, as far as it exists.
fn resolve(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            Component::CurDir => {}
            part => {
                real.push(part);
                real = real.canonicalize().unwrap_or(real);
            }
        }
    }
    real
}

/// The first line of a file, if it is text and not too long.
fn first_line(path: &Path) -> Option<String> {
    const MOST: u64 = 1 << 16;
    let file = open_file(path).ok()?;
    let mut line = String::new();
    BufReader::new(std::io::Read::take(file, MOST)).read_line(&mut line).ok()?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn whatever_way_leads_to_a_file_it_is_written_once_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("deep/er")).unwrap();
        symlink("deep", at("way")).unwrap();
        fs::write(at("deep/log"), "{}\n").unwrap();
        fs::hard_link(at("deep/log"), at("twin")).unwrap();
        let line = |outputs: &mut Outputs, path: &str| {
            let refused = outputs.file("--log", &at(path), None);
            refused.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for path in ["deep/log", "way/log", "deep/er/../log", "./deep//log", "twin"] {
            assert!(line(&mut Outputs::new(false), path).contains("pass --force"), "{path}");
            let mut forced = Outputs::new(true).reads("INPUT", &at("deep/log"));
            assert!(line(&mut forced, path).contains("which is read (INPUT)"), "{path}");
            let mut forced = Outputs::new(true);
            forced.file("--timeline", &at("deep/log"), None).unwrap();
            assert!(line(&mut forced, path).contains("is where --timeline writes"), "{path}");
        }
        // Paths that do not exist yet are compared too, also a path inside another future output.
        let mut outputs = Outputs::new(false);
        outputs.file("--out", &at("new/x"), None).unwrap();
        for path in ["new/x", "new/../new/x", "new/x/y"] {
            assert!(line(&mut outputs, path).contains("is where --out writes"), "{path}");
        }
        outputs.folder("--checkpoint", &at("run")).unwrap();
        assert_eq!(line(&mut outputs, "run/log"), "");
        assert!(line(&mut outputs, "way").contains("is a link: name what it points to"));
        assert!(line(&mut outputs, "deep").contains("no plain file"));
        for way in ["way", "way/", "way/."] {
            let refused =
                Outputs::new(true).folder("--checkpoint", &at(way)).unwrap_err().to_string();
            assert!(
                refused.ends_with("is a link: name what it points to, or remove it"),
                "{refused}"
            );
        }
        // Replacing a folder removes the inputs in it.
        let mut outputs = Outputs::new(true).reads("DATASET", &at("deep/er"));
        assert!(
            outputs
                .artifact("--out", &at("deep"))
                .unwrap_err()
                .to_string()
                .contains("which is read (DATASET)")
        );
        outputs.artifact("--out", &at("other")).unwrap();
    }

    #[test]
    fn files_that_gsplit_wrote_are_known_by_their_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let own: Known = |line| line == "gsplit\n";
        for (content, fine) in
            [("", true), ("gsplit\n1\n", true), ("gsplit", false), ("thesis\n", false)]
        {
            fs::write(&path, content).unwrap();
            assert_eq!(
                Outputs::new(false).file("--x", &path, Some(own)).is_ok(),
                fine,
                "{content}"
            );
            assert!(Outputs::new(true).file("--x", &path, Some(own)).is_ok());
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(Outputs::new(false).file("--x", &path, Some(own)).is_err());
    }
}
