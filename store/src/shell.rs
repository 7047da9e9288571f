//! Quotes words of command lines that messages suggest, so that a shell reads them unchanged.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes `word` for a shell if necessary. Control characters and bytes that are not UTF-8 are
/// written as octal numbers in `$'...'`, which bash, ksh and zsh read.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().as_bytes();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    let is_shown = |c: char| c.is_alphanumeric() || c == ' ' || c.is_ascii_graphic();
    match std::str::from_utf8(word) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => return text.to_string(),
        Ok(text) if text.chars().all(is_shown) => {
            return format!("'{}'", text.replace('\'', r"'\''"));
        }
        _ => {}
    }
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let mut quoted = String::from("$'");
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => quoted.extend(['\\', c]),
                c if is_shown(c) => quoted.push(c),
                c => quoted += &octal(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        quoted += &octal(chunk.invalid());
    }
    quoted + "'"
}

/// `path` as an argument that is not mistaken for an option: `./-name`.
pub fn as_argument(path: &Path) -> Cow<'_, Path> {
    match path.as_os_str().as_bytes().starts_with(b"-") {
        true => Path::new(".").join(path).into(),
        false => path.into(),
    }
}

/// `path` as an argument, quoted by [`shell_word`].
pub fn shell_path(path: impl AsRef<Path>) -> String {
    shell_word(as_argument(path.as_ref()).as_os_str())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_back_every_path() {
        for (path, expected) in [
            ("runs/a=b_c-1.5,%+@:", "runs/a=b_c-1.5,%+@:"),
            ("größe", "größe"),
            ("", "''"),
            ("it's 50 $HOME `x` \"q\" \\ ~ !", r#"'it'\''s 50 $HOME `x` "q" \ ~ !'"#),
            ("-rf", "./-rf"),
            ("-a b", "'./-a b'"),
        ] {
            assert_eq!(shell_path(path), expected);
        }
        for (path, expected) in [
            (&b"d\xe9j\xc3\xa0'\\1"[..], r"$'d\351jà\'\\1'"),
            (b"-a\n\x1b[1m", r"$'./-a\012\033[1m'"),
        ] {
            assert_eq!(shell_path(OsStr::from_bytes(path)), expected);
        }
        let names: [&[u8]; 6] = [b"a b", b"it's", b"\xff\xfe9", b"-n", b"$(x) \xe9'\\", b"line\n2"];
        for name in names {
            let line = format!("printf %s {}", shell_path(OsStr::from_bytes(name)));
            let read = Command::new("bash").args(["-c", &line]).output().unwrap().stdout;
            let given = as_argument(Path::new(OsStr::from_bytes(name))).into_owned();
            assert_eq!(OsStr::from_bytes(&read), given.as_os_str(), "{line}");
        }
    }
}
