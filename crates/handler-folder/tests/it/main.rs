//! Folders as hostile agents leave them.

mod hostile;
mod repositories;
mod reverts;

use handler_folder::Root;
use std::path::Path;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("parent")).expect("folders");
    std::fs::write(path, text).expect("written");
}

fn open(root: &Path) -> Root {
    Root::open(&root.canonicalize().expect("real path")).expect("opens")
}
