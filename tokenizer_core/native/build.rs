//! Gives the crate a hash of its sources: a compiled tokenizer of other sources has another layout.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    add_files(Path::new("src"), &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(file.to_string_lossy().as_bytes());
        hasher.write(&fs::read(&file).expect("a source"));
    }
    hasher.write(env::var("TARGET").expect("cargo sets it").as_bytes());
    println!("cargo::rustc-env=TOKENIZER_LAYOUT={:016x}", hasher.finish());
}
