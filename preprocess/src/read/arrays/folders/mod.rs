//! Folders of datasets as their authors hand them out: files have fixed names, so each reader knows what it opens.

pub mod graphsaint;
pub mod igb;
pub mod mag240m;
pub mod ogb;
pub mod planetoid;
