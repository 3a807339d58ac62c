//! Compiles `proto/`: messages for the library, clients for its tests, and the descriptors that reflection serves.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;
use tonic_prost_build::{FileDescriptorSet, configure};

const FILES: [&str; 2] = ["dataplane.proto", "model_repository.proto"];

#[expect(clippy::disallowed_methods, reason = "cargo tells build scripts everything through the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let descriptors = protox::compile(FILES, ["proto"])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    messages(&out.join("messages"), descriptors.clone())?;
    clients(&out.join("clients"), descriptors)?;
    Ok(())
}

fn messages(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let builder = configure().build_client(false).build_server(false).out_dir(out);
    // Maps in order, so that the same message is always the same bytes.
    builder.bytes(".").btree_map(".").disable_comments(["."]).compile_fds(descriptors)?;
    Ok(())
}

fn clients(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let messages = "::mlserver::types::protobuf::messages";
    let builder = configure().build_server(false).out_dir(out).disable_comments(["."]);
    // The deeper package comes first: the first path that fits is taken.
    let builder = builder.extern_path(".inference.model_repository", format!("{messages}::model_repository"));
    builder.extern_path(".inference", messages).compile_fds(descriptors)?;
    Ok(())
}
