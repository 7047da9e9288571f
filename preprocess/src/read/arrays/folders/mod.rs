//! Dataset folders as their authors publish them: files have fixed names, so each reader knows the
//! content.

pub mod graphsaint;
pub mod ogb;
pub mod planetoid;
pub mod relations;
