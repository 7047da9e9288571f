use std::io::{Cursor, Write};

use gsplit_store::NoProgress;
use tar::{EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

/// A tar with one member of `kind`, whose header says what it likes.
fn tar_of(name: &[u8], kind: EntryType, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
    bytes
}

fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Unpacks `bytes`; the one line of a refusal, and whatever is left is gone.
fn unpack(bytes: &[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("x.archive"), folder.path().join("ds"));
    fs::write(&path, bytes).unwrap();
    let unpacked = packing(&path, None).and_then(|packing| match packing {
        Some(packing) => Unpacked::of(&path, packing, &out, None, &NoProgress).map(Some),
        None => Ok(None),
    });
    if let Ok(Some(unpacked)) = &unpacked {
        assert!(unpacked.root().starts_with(super::folder(&out)) && unpacked.root().exists());
    }
    let result = unpacked.and_then(|unpacked| unpacked.map(drop).ok_or_else(|| Error::input(&path, "no archive")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "what was unpacked is removed");
    result.map_err(|error| {
        let message = error.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    })
}

#[test]
fn members_that_leave_the_folder_or_are_no_files_are_refused_by_name() {
    let file = |name: &[u8]| tar_of(name, EntryType::Regular, 4, b"1 2\n");
    unpack(&file(b"./a/edges.txt")).unwrap();
    let kinds = [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo];
    let mut table = vec![
        (file(b"/etc/x"), "member `/etc/x` has a name that leads out"),
        (file(b"a/../../x"), "member `a/../../x` has a name that leads out"),
        (file(b"a\nb"), "member `a\\nb` has control characters"),
        ([&file(b"a")[..1024], &file(b"a")].concat(), "member `a` is in it twice"),
        ([&file(b"a")[..1024], &file(b"a/b")].concat(), "member `a/b` lies in another member"),
        (zip_of(&[("../x", b"1 2\n")]), "member `../x` has a name that leads out"),
        (zip_of(&[("/x", b"1 2\n")]), "member `/x` has a name that leads out"),
        (zip_of(&[("README.md", b"x")]), "an archive without a file of data"),
    ];
    table.extend(kinds.map(|kind| {
        let problem =
            if kind == EntryType::Symlink || kind == EntryType::Link { "is a link" } else { "is no plain file" };
        (tar_of(b"README", kind, 0, b""), problem)
    }));
    let mut link = ZipWriter::new(Cursor::new(Vec::new()));
    link.add_symlink("edges.txt", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    table.push((link.finish().unwrap().into_inner(), "member `edges.txt` is a link"));
    for (bytes, part) in table {
        let message = unpack(&bytes).unwrap_err();
        assert!(message.contains("x.archive: ") && message.contains(part), "{part}: {message}");
    }
}

#[test]
fn bombs_are_refused_before_they_fill_the_disk_or_the_memory() {
    let message = unpack(&tar_of(b"edges.txt", EntryType::Regular, 1 << 60, b"1 2\n")).unwrap_err();
    assert!(
        message.contains("x.archive takes 1048576 TiB here and more") && message.contains("free some space"),
        "{message}"
    );
    // A long name of 64 MiB in 64 KiB.
    let name = tar_of(b"././@LongLink", EntryType::GNULongName, 64 << 20, &vec![b'a'; 64 << 20]);
    let message = unpack(&gzip(&name)).unwrap_err();
    assert!(message.contains("a header that is too long"), "{message}");
    // More bytes than the directory of the archive says.
    let mut zip = zip_of(&[("edges.txt", &b"1 2\n".repeat(1000))]);
    let at = zip.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    zip[at + 24..at + 28].copy_from_slice(&8u32.to_le_bytes());
    let message = unpack(&zip).unwrap_err();
    assert!(message.contains("x.archive: ") && message.contains("damaged"), "{message}");
}

#[test]
fn every_cut_and_every_flipped_byte_of_what_is_compressed_is_noticed() {
    let content: Vec<u8> = (0..400u32).flat_map(|v| format!("{} {}\n", v * 7919 % 4001, v).into_bytes()).collect();
    let tar = tar_of(b"edges.txt", EntryType::Regular, content.len() as u64, &content);
    let zip = zip_of(&[("edges.txt", &content)]);
    for good in [gzip(&tar), zip] {
        unpack(&good).unwrap();
        for at in (0..good.len()).step_by(31) {
            unpack(&good[..at]).unwrap_err();
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            // Times and the like may change; whatever it is, nothing panics.
            let _ = unpack(&bytes);
        }
    }
    for cut in [0, 100, 511, 600, 512 + content.len() - 1] {
        unpack(&tar[..cut]).unwrap_err();
    }
}

#[test]
fn archives_are_told_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let zip = zip_of(&[("a.npy", b"x")]);
    let tar = tar_of(b"a", EntryType::Regular, 0, b"");
    for (name, bytes, format, expected) in [
        ("x", &zip[..], None, Some(ArchiveFormat::Zip)),
        ("x.npz", &zip, None, None),
        ("x.pt", &zip, None, None),
        ("x.bin", &zip, Some(Format::Npz), None),
        ("x.txt", &tar, None, Some(ArchiveFormat::Tar)),
        ("x.gz", &gzip(&tar), None, Some(ArchiveFormat::Tar)),
        ("y.gz", &gzip(b"1 2\n"), None, None),
        ("y.tar", b"1 2\n", None, None),
        ("z.gz", b"\x1f\x8b", None, None),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert_eq!(packing(&path, format).unwrap(), expected, "{name}");
    }
    assert_eq!(packing(folder.path(), None).unwrap(), None);
}

#[test]
fn messages_name_members_in_the_archive_wherever_the_output_is() {
    for (out, place) in [("ds", "./.ds.unpacked.partial/artifact"), ("a/ds", "a/.ds.unpacked.partial/artifact")] {
        let (out, source) = (Path::new(out), Path::new("b/x.zip"));
        let member = Path::new(place).join("c/d.txt");
        let error = as_named(Error::line(&member, 7, "wrong"), out, source);
        assert_eq!(error.to_string(), "b/x.zip/c/d.txt, line 7: wrong");
        assert_eq!(named(&format!("{}: found", member.display()), out, source), "b/x.zip/c/d.txt: found");
    }
}
