//! The inputs of a run with their outputs: one of each, or several inputs whose answers go to files of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::anyhow;
use futures_util::{StreamExt, stream};

use super::options::{ResolvedArgs, is_folder};
use crate::client::{InputOrigin, OutputTarget, RangedInput, SourceFormat};
use crate::commands::{CommandError, USAGE};
use crate::repository::is_store_uri;
use crate::settings::Environment;

/// How many outputs of an earlier run are looked for at once.
const LOOKS_AT_ONCE: usize = 16;

/// An input, and where its answers go.
#[derive(Debug)]
pub(super) struct InferJob {
    pub(super) input: JobInput,
    pub(super) output: OutputTarget,
    /// The object that the complete output becomes.
    pub(super) upload: Option<UploadTarget>,
}

#[derive(Debug, Clone)]
pub(super) enum JobInput {
    Origin(InputOrigin),
    /// An object of a store.
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "only stores have objects"))]
    Ranged(Arc<dyn RangedInput>),
}

impl InferJob {
    /// Returns the name of the input in messages.
    pub(super) fn shown(&self) -> String {
        match &self.input {
            JobInput::Origin(InputOrigin::File(path)) => format!("`{}`", path.display()),
            JobInput::Origin(InputOrigin::Topic(address)) => format!("`{address}`"),
            JobInput::Ranged(input) => format!("`{}`", input.name()),
        }
    }
}

/// The inputs of a run that are to be answered.
#[derive(Debug)]
pub(super) struct InferPlan {
    pub(super) jobs: Vec<InferJob>,
    /// The number of inputs whose answers are complete.
    pub(super) done: usize,
    /// All inputs together, in bytes, if it is known.
    pub(super) size: Option<u64>,
}

/// An input of a run.
struct FoundInput {
    input: JobInput,
    /// The path below the folder of the output.
    path: String,
    /// The name in messages.
    shown: String,
    size: Option<u64>,
    modified: Modified,
}

/// When an input was written.
enum Modified {
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "only outputs in stores are compared with it"))]
    Known(Option<SystemTime>),
    #[cfg(feature = "storage")]
    Object(crate::storage::StoredObject),
}

/// Lists the inputs and finds their outputs.
pub(super) async fn plan(
    resolved: &ResolvedArgs,
    should_resume: bool,
    environment: &dyn Environment,
) -> Result<InferPlan, CommandError> {
    let uses_store = |path: &Path| is_store_uri(&path.to_string_lossy());
    let is_plain = |input: &InputOrigin| !matches!(input, InputOrigin::File(path) if uses_store(path));
    let to_file = matches!(&resolved.output, OutputTarget::File(path) if uses_store(path) || is_folder(path));
    if !to_file && resolved.inputs.len() == 1 && is_plain(&resolved.inputs[0]) {
        let input = JobInput::Origin(resolved.inputs[0].clone());
        let job = InferJob { input, output: resolved.output.clone(), upload: None };
        return Ok(InferPlan { jobs: vec![job], done: 0, size: None });
    }
    let output_in_store = matches!(&resolved.output, OutputTarget::File(path) if uses_store(path));
    let needs_stores = output_in_store || !resolved.inputs.iter().all(is_plain);
    let stores = if needs_stores { Some(Stores::open(environment)?) } else { None };
    let mut found = Vec::new();
    for input in &resolved.inputs {
        match (input, &stores) {
            (InputOrigin::File(path), Some(stores)) if uses_store(path) => {
                found.extend(stores.inputs(&path.to_string_lossy()).await?);
            }
            (InputOrigin::File(path), _) => found.push(FoundInput::of_file(path)),
            (InputOrigin::Topic(address), _) => {
                return Err(usage(format!("`{address}` is a topic, whose answers go to a file or a topic")));
            }
        }
    }
    check_formats(resolved, &found)?;
    let size = found.iter().map(|input| input.size).sum();
    let OutputTarget::File(output) = &resolved.output else {
        let input = only(found, "standard output or a topic")?;
        let job = InferJob { input, output: resolved.output.clone(), upload: None };
        return Ok(InferPlan { jobs: vec![job], done: 0, size });
    };
    if !is_folder(output) {
        let shown = crate::types::without_credentials(&output.to_string_lossy());
        let count = found.len();
        if count > 1 {
            return Err(usage(format!(
                "there are {count} inputs, but the output `{shown}` is one file: name a folder, with `/` at its end"
            )));
        }
    }
    let outputs = outputs(found, output)?;
    let mut plan = InferPlan { jobs: Vec::new(), done: 0, size };
    if let Some(stores) = stores.as_ref().filter(|_| output_in_store) {
        let looks = outputs.into_iter().map(|(input, output)| async move {
            let (target, upload) = stores.target(&output.to_string_lossy())?;
            let is_done = should_resume && stores.is_done(&upload, &target, &input.modified).await?;
            let job = InferJob { input: input.input, output: OutputTarget::File(target), upload: Some(upload) };
            Ok::<_, CommandError>((job, input.size, is_done))
        });
        let mut looks = stream::iter(looks).buffered(LOOKS_AT_ONCE);
        while let Some(found) = looks.next().await {
            match found? {
                (_, size, true) => {
                    plan.done += 1;
                    plan.size = plan.size.zip(size).map(|(all, size)| all - size);
                }
                (job, ..) => plan.jobs.push(job),
            }
        }
        return Ok(plan);
    }
    for (input, output) in outputs {
        if let Some(folder) = output.parent() {
            let created = std::fs::create_dir_all(folder);
            created.map_err(|error| anyhow!("cannot create the folder `{}`: {error}", folder.display()))?;
        }
        plan.jobs.push(InferJob { input: input.input, output: OutputTarget::File(output), upload: None });
    }
    Ok(plan)
}

/// Returns each input with the path or URI of its output.
fn outputs(found: Vec<FoundInput>, output: &Path) -> Result<Vec<(FoundInput, PathBuf)>, CommandError> {
    if !is_folder(output) {
        return Ok(found.into_iter().map(|input| (input, output.to_owned())).collect());
    }
    let folder = output.to_string_lossy();
    let mut names = BTreeMap::new();
    for input in &found {
        let name = output_name(&input.path);
        if let Some(other) = names.insert(name.clone(), input.shown.clone()) {
            let shown = &input.shown;
            return Err(usage(format!(
                "the answers to `{other}` and `{shown}` would both be `{name}`: choose other inputs"
            )));
        }
    }
    Ok(found
        .into_iter()
        .map(|input| {
            let name = output_name(&input.path);
            // In URIs, a `#` begins a pin.
            let name = if is_store_uri(&folder) { name.replace("%23", "%2523").replace('#', "%23") } else { name };
            let path = PathBuf::from(format!("{folder}{name}"));
            (input, path)
        })
        .collect())
}

/// Returns the name of the output of an input: the same, unless no output has such a format.
fn output_name(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((stem, "npy")) => format!("{stem}.jsonl"),
        _ => path.to_owned(),
    }
}

/// Rejects inputs of another format than the one that the first name tells.
fn check_formats(resolved: &ResolvedArgs, found: &[FoundInput]) -> Result<(), CommandError> {
    let differs = |input: &&FoundInput| match (SourceFormat::of(Path::new(&input.path)), resolved.format) {
        (SourceFormat::Requests, SourceFormat::OpenAi) => false,
        (of_name, format) => of_name != format,
    };
    match found.iter().find(differs).filter(|_| !resolved.is_format_given) {
        Some(input) => Err(usage(format!(
            "`{}` has another format than the other inputs, or than the name of the input tells: set --input-format",
            input.shown
        ))),
        None => Ok(()),
    }
}

fn only(found: Vec<FoundInput>, output: &str) -> Result<JobInput, CommandError> {
    let count = found.len();
    match <[FoundInput; 1]>::try_from(found) {
        Ok([input]) => Ok(input.input),
        Err(_) => Err(usage(format!(
            "there are {count} inputs, but the output is {output}: name a folder, with `/` at its end"
        ))),
    }
}

impl FoundInput {
    fn of_file(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        Self {
            input: JobInput::Origin(InputOrigin::File(path.to_owned())),
            path: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            shown: path.display().to_string(),
            size: metadata.as_ref().map(std::fs::Metadata::len),
            modified: Modified::Known(metadata.and_then(|metadata| metadata.modified().ok())),
        }
    }
}

fn usage(problem: String) -> CommandError {
    CommandError { error: anyhow!(problem), code: USAGE }
}

#[cfg(feature = "storage")]
use with_storage::Stores;
#[cfg(feature = "storage")]
pub(super) use with_storage::UploadTarget;
#[cfg(not(feature = "storage"))]
use without_storage::Stores;
#[cfg(not(feature = "storage"))]
pub(super) use without_storage::UploadTarget;

#[cfg(feature = "storage")]
mod with_storage {
    use std::io;
    use std::ops::Range;
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;

    use bytes::Bytes;
    use tokio::runtime::Handle;

    use super::{Arc, CommandError, Environment, FoundInput, JobInput, Modified, Path, PathBuf, RangedInput, anyhow};
    use crate::client::output_files;
    use crate::registry::{chain, storage_options};
    use crate::settings::{Settings, SettingsSources};
    use crate::storage::{Location, Storage, StorageError, StorageUri, StoredObject};

    /// The stores of inputs and outputs.
    pub(in crate::commands::infer) struct Stores(Storage);

    /// An object that an output becomes.
    #[derive(Debug, Clone)]
    pub(in crate::commands::infer) struct UploadTarget {
        storage: Storage,
        uri: StorageUri,
    }

    #[derive(Debug)]
    struct ObjectInput {
        object: StoredObject,
        runtime: Handle,
    }

    impl RangedInput for ObjectInput {
        fn name(&self) -> &str {
            self.object.shown()
        }

        fn size(&self) -> u64 {
            self.object.size()
        }

        fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
            let (object, (sender, receiver)) = (self.object.clone(), mpsc::sync_channel(1));
            // A task, because a thread that waits for a future would panic if the run ends meanwhile.
            self.runtime.spawn(async move { sender.send(object.read(range).await) });
            let read = receiver.recv().map_err(|_| io::Error::other("the run has ended"))?;
            read.map_err(|error| io::Error::other(chain(&error)))
        }
    }

    impl Stores {
        pub(super) fn open(environment: &dyn Environment) -> Result<Self, CommandError> {
            let settings = Settings::load(Path::new("."), &SettingsSources::read(environment)?, false)?.settings;
            let variables = environment.variables().into_iter().collect();
            Ok(Self(Storage::new(storage_options(&settings.storage, variables))))
        }

        pub(super) async fn inputs(&self, text: &str) -> Result<Vec<FoundInput>, CommandError> {
            let uri = StorageUri::parse(text)?;
            if let Location::Local(path) = &uri.location {
                return Ok(vec![FoundInput::of_file(path)]);
            }
            let objects = self.0.objects(&uri).await.map_err(|error| failed(&error))?;
            let runtime = Handle::current();
            let input = |object: StoredObject| FoundInput {
                path: object.path().to_owned(),
                shown: object.shown().to_owned(),
                size: Some(object.size()),
                modified: Modified::Object(object.clone()),
                input: JobInput::Ranged(Arc::new(ObjectInput { object, runtime: runtime.clone() })),
            };
            Ok(objects.into_iter().map(input).collect())
        }

        /// Returns the file of this machine that an output is written to, and the object that it becomes.
        pub(super) fn target(&self, text: &str) -> Result<(PathBuf, UploadTarget), CommandError> {
            let uri = StorageUri::parse(text)?;
            let folder = self.0.answers_folder(&uri).map_err(|error| failed(&error))?;
            let name = match &uri.location {
                Location::Bucket { key, .. } => key.rsplit('/').next().unwrap_or(key).to_owned(),
                _ => return Err(failed(&StorageError::NotWritable { uri: uri.shown().to_owned() })),
            };
            Ok((folder.join(name), UploadTarget { storage: self.0.clone(), uri }))
        }

        /// Reports whether an output was written after its input. Then what an interrupted run has left is removed.
        pub(super) async fn is_done(
            &self,
            upload: &UploadTarget,
            file: &Path,
            input: &Modified,
        ) -> Result<bool, CommandError> {
            let Some(written) = self.0.modified(&upload.uri).await.map_err(|error| failed(&error))? else {
                return Ok(false);
            };
            let modified = match input {
                Modified::Known(modified) => *modified,
                Modified::Object(object) => object.modified().await.map_err(|error| failed(&error))?,
            };
            let is_done = modified.is_none_or(|modified| written > modified);
            if is_done {
                self.0.abort_upload(&upload.uri, file).await;
                for leftover in output_files(file) {
                    let _ = std::fs::remove_file(leftover);
                }
                remove_folder(file);
            }
            Ok(is_done)
        }
    }

    impl UploadTarget {
        /// Returns the URI as it may be shown.
        pub(in crate::commands::infer) fn shown(&self) -> &str {
            self.uri.shown()
        }

        /// Writes a complete output to the object, and removes it. `sent` counts bytes.
        pub(in crate::commands::infer) async fn finish(
            &self,
            file: &Path,
            sent: &AtomicU64,
        ) -> Result<(), CommandError> {
            self.storage.upload(&self.uri, file, sent).await.map_err(|error| failed(&error))?;
            // The next run does not need it.
            let _ = std::fs::remove_file(file);
            remove_folder(file);
            Ok(())
        }

        /// Gives up the upload of an interrupted run.
        pub(in crate::commands::infer) async fn abort(&self, file: &Path) {
            self.storage.abort_upload(&self.uri, file).await;
        }
    }

    /// Removes the folder of an output if it is empty.
    fn remove_folder(file: &Path) {
        if let Some(folder) = file.parent() {
            let _ = std::fs::remove_dir(folder);
        }
    }

    fn failed(error: &StorageError) -> CommandError {
        anyhow!("{}", chain(error)).into()
    }
}

#[cfg(not(feature = "storage"))]
mod without_storage {
    use std::sync::atomic::AtomicU64;

    use super::{CommandError, Environment, FoundInput, Modified, Path, PathBuf, anyhow};
    use crate::commands::WITHOUT_STORAGE;

    /// Refuses objects of stores.
    pub(in crate::commands::infer) struct Stores(());

    /// Is never created.
    #[derive(Debug, Clone)]
    pub(in crate::commands::infer) enum UploadTarget {}

    impl Stores {
        #[expect(clippy::unnecessary_wraps, reason = "with the feature, it reads settings")]
        pub(super) fn open(_: &dyn Environment) -> Result<Self, CommandError> {
            Ok(Self(()))
        }

        #[expect(clippy::unused_async, reason = "with the feature, it lists")]
        pub(super) async fn inputs(&self, text: &str) -> Result<Vec<FoundInput>, CommandError> {
            Err(self.refuse(text))
        }

        pub(super) fn target(&self, text: &str) -> Result<(PathBuf, UploadTarget), CommandError> {
            Err(self.refuse(text))
        }

        #[expect(clippy::unused_async, reason = "with the feature, it asks the store")]
        pub(super) async fn is_done(
            &self,
            upload: &UploadTarget,
            _: &Path,
            _: &Modified,
        ) -> Result<bool, CommandError> {
            let Self(()) = self;
            match *upload {}
        }

        fn refuse(&self, text: &str) -> CommandError {
            let Self(()) = self;
            anyhow!("cannot use `{}`: {WITHOUT_STORAGE}", crate::types::without_credentials(text)).into()
        }
    }

    impl UploadTarget {
        pub(in crate::commands::infer) fn shown(&self) -> &str {
            match *self {}
        }

        #[expect(clippy::unused_async, reason = "with the feature, it uploads")]
        pub(in crate::commands::infer) async fn finish(&self, _: &Path, _: &AtomicU64) -> Result<(), CommandError> {
            match *self {}
        }

        #[expect(clippy::unused_async, reason = "with the feature, it asks the store")]
        pub(in crate::commands::infer) async fn abort(&self, _: &Path) {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(inputs: &[&str], output: &str) -> Result<Vec<String>, String> {
        let found = inputs.iter().map(|path| FoundInput::of_file(Path::new(path))).collect();
        let outputs = outputs(found, Path::new(output)).map_err(|error| error.error.to_string())?;
        Ok(outputs.into_iter().map(|(_, path)| path.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn outputs_of_a_folder_have_the_names_of_their_inputs() {
        assert_eq!(names(&["a/x.csv", "a/y.npy"], "out/").unwrap(), ["out/x.csv", "out/y.jsonl"]);
        assert_eq!(names(&["a/x#1.csv"], "s3://b/out/").unwrap(), ["s3://b/out/x%231.csv"]);
        assert_eq!(names(&["a/x.csv"], "s3://b/y.jsonl").unwrap(), ["s3://b/y.jsonl"]);
        let error = names(&["a/x.csv", "b/x.csv"], "out/").unwrap_err();
        assert_eq!(error, "the answers to `a/x.csv` and `b/x.csv` would both be `x.csv`: choose other inputs");
    }
}
