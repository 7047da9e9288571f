//! String ids: each is represented by a hash, and the strings are kept once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

/// Distinct strings by their hashes; borrowed, or owned where the text goes away.
#[derive(Debug)]
pub struct Names<S> {
    seen: HashMap<u64, S, BuildHasherDefault<Hashed>>,
    /// Strings with the hash of another: the engine has to see both.
    clashes: Vec<(u64, S)>,
}

/// [`Names`] of text that goes away.
pub type TextNames = Names<Box<str>>;

impl<S> Default for Names<S> {
    fn default() -> Self {
        Self { seen: HashMap::default(), clashes: Vec::new() }
    }
}

/// Hasher for keys that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| hash.rotate_left(8) ^ u64::from(byte));
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<S: AsRef<str>> Names<S> {
    /// The id, a hash, of `name`.
    pub fn id<'b>(&mut self, name: &'b str) -> u64
    where
        S: From<&'b str>,
    {
        let hash = xxh3_64(name.as_bytes());
        match self.seen.entry(hash) {
            Entry::Vacant(place) => drop(place.insert(name.into())),
            Entry::Occupied(place) if place.get().as_ref() == name => {}
            Entry::Occupied(_) => self.clashes.push((hash, name.into())),
        }
        hash
    }

    /// Appends every string once.
    pub fn append_to(self, names: &mut Vec<(u64, String)>) {
        let all = self.seen.into_iter().chain(self.clashes);
        names.extend(all.map(|(hash, name)| (hash, name.as_ref().to_string())));
    }
}
