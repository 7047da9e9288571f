//! String ids: each is represented by a hash, and the strings are kept once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

/// Distinct strings by their hashes.
#[derive(Debug, Default)]
pub struct TextNames {
    seen: HashMap<u64, String, BuildHasherDefault<Hashed>>,
    /// Strings with the hash of another: the engine has to see both.
    clashes: Vec<(u64, String)>,
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

impl TextNames {
    /// The id, a hash, of `name`.
    pub fn id(&mut self, name: &str) -> u64 {
        let hash = xxh3_64(name.as_bytes());
        match self.seen.entry(hash) {
            Entry::Vacant(place) => drop(place.insert(name.into())),
            Entry::Occupied(place) if place.get() == name => {}
            Entry::Occupied(_) => self.clashes.push((hash, name.into())),
        }
        hash
    }

    /// Appends every string once.
    pub fn append_to(self, names: &mut Vec<(u64, String)>) {
        names.extend(self.seen.into_iter().chain(self.clashes));
    }
}
