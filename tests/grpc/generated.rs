//! The code that is generated from `proto/`: `MLSERVER_UPDATE=1 cargo test --test main -- generated` updates it.
//!
//! It is committed, so that a first build need not compile a protobuf compiler.

use std::error::Error;
use std::fs;
use std::path::Path;

use protox::prost::Message;
use tonic_prost_build::{FileDescriptorSet, configure};

use crate::support::{Folder, repository_path};

const PROTO_FILES: [&str; 2] = ["dataplane.proto", "model_repository.proto"];

/// The files by their names in a folder of generated code.
const NAMES: [(&str, &str); 2] =
    [("inference.rs", "inference.rs"), ("inference.model_repository.rs", "model_repository.rs")];

fn messages(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let builder = configure().build_client(false).build_server(false).out_dir(out);
    // Ordered maps, so that equal messages have equal bytes.
    builder.bytes(".").btree_map(".").disable_comments(["."]).compile_fds(descriptors)?;
    Ok(())
}

fn clients(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let messages = "::mlserver::types::protobuf::messages";
    let builder = configure().build_server(false).out_dir(out).disable_comments(["."]);
    // The more specific package comes first: the first matching path is used.
    let builder = builder.extern_path(".inference.model_repository", format!("{messages}::model_repository"));
    builder.extern_path(".inference", messages).compile_fds(descriptors)?;
    Ok(())
}

/// Checks that a committed file has this content, or updates it.
#[track_caller]
fn is_up_to_date(path: &str, content: &[u8]) {
    let file = repository_path(path);
    if std::env::vars_os().any(|(name, _)| name == "MLSERVER_UPDATE") {
        fs::write(&file, content).unwrap();
    }
    let found = fs::read(&file).unwrap_or_default();
    assert!(found == content, "{path} is stale: MLSERVER_UPDATE=1 cargo test --test main -- generated");
}

#[test]
fn generated_protobuf_code_is_up_to_date() {
    let descriptors = protox::compile(PROTO_FILES, [repository_path("proto")]).unwrap();
    is_up_to_date("src/types/protobuf/generated/descriptors.bin", &descriptors.encode_to_vec());
    let folder = Folder::new().file("messages/.keep", "").file("clients/.keep", "");
    messages(&folder.path("messages"), descriptors.clone()).unwrap();
    clients(&folder.path("clients"), descriptors).unwrap();
    for (generated, name) in NAMES {
        let read = |kind: &str| fs::read(folder.path(kind).join(generated)).unwrap();
        is_up_to_date(&format!("src/types/protobuf/generated/{name}"), &read("messages"));
        is_up_to_date(&format!("tests/support/generated/{name}"), &read("clients"));
    }
}
