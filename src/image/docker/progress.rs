//! Follows the progress of a build: reports its steps, and the last output of a failed step.

use std::collections::{HashMap, VecDeque};

use anstream::adapter::strip_str;
use bollard::moby::buildkit::v1::{StatusResponse, Vertex};

/// How many lines of a step's output are kept in case it fails.
const MAX_OUTPUT_LINES: usize = 40;
/// The limit on the length of a line of output, in bytes. Progress bars are very long lines.
const MAX_LINE_BYTES: usize = 2_000;

/// The progress of a build.
#[derive(Debug, Default)]
pub(super) struct BuildProgress {
    steps: HashMap<String, BuildStep>,
    /// The current step of the classic builder, which runs one step at a time.
    current: String,
    announced: usize,
}

#[derive(Debug, Default)]
struct BuildStep {
    number: usize,
    name: String,
    output: StepOutput,
    error: Option<String>,
    is_done: bool,
}

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", describe(step.as_deref(), reason, output))]
pub struct BuildFailure {
    /// The step that failed, if one did.
    pub step: Option<String>,
    pub reason: String,
    /// The last lines of the step's output.
    pub output: Vec<String>,
}

/// Describes a failure. The step's output comes last, where users look first.
fn describe(step: Option<&str>, reason: &str, output: &[String]) -> String {
    let mut text = match step {
        Some(step) => format!("the build failed at `{step}`: {reason}"),
        None => format!("the build failed: {reason}"),
    };
    for line in output {
        text.push('\n');
        text.push_str(line);
    }
    text
}

impl BuildProgress {
    /// Adds a status of BuildKit, and returns the lines to report.
    pub(super) fn add_buildkit(&mut self, status: StatusResponse) -> Vec<String> {
        let mut lines = Vec::new();
        for vertex in status.vertexes {
            lines.extend(self.vertex(vertex));
        }
        for log in status.logs {
            if let Some(step) = self.steps.get_mut(&log.vertex) {
                step.output.add(&log.msg);
            }
        }
        lines
    }

    fn vertex(&mut self, vertex: Vertex) -> Vec<String> {
        let step = self.steps.entry(vertex.digest).or_default();
        let mut lines = Vec::new();
        let is_internal = vertex.name.starts_with("[internal]");
        if step.number == 0 && (vertex.started.is_some() || vertex.cached) && !is_internal {
            self.announced += 1;
            step.number = self.announced;
            lines.push(format!("#{} {}", step.number, vertex.name));
        }
        step.name = vertex.name;
        if !vertex.error.is_empty() {
            step.error = Some(vertex.error);
        } else if let Some(completed) = vertex.completed.filter(|_| step.number > 0 && !step.is_done) {
            step.is_done = true;
            if vertex.cached {
                lines.push(format!("#{} cached", step.number));
            } else if let Some(started) = vertex.started {
                #[expect(clippy::cast_precision_loss, reason = "builds take less than 2^52 seconds")]
                let seconds =
                    (completed.seconds - started.seconds) as f64 + f64::from(completed.nanos - started.nanos) / 1e9;
                lines.push(format!("#{} done in {seconds:.1} s", step.number));
            }
        }
        lines
    }

    /// Adds output of the classic builder, and returns the lines to report.
    pub(super) fn add_classic(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with("Step ") {
                line.clone_into(&mut self.current);
                let name = line.split_once(" : ").map_or(line, |(_, name)| name).to_owned();
                self.steps.insert(line.to_owned(), BuildStep { name, ..BuildStep::default() });
                lines.push(line.to_owned());
            }
        }
        // Messages of the engine about its containers are not output of the step.
        let by_engine = text.starts_with(" ---> ") || text.starts_with("Removing intermediate container ");
        if lines.is_empty()
            && !by_engine
            && let Some(step) = self.steps.get_mut(&self.current)
        {
            step.output.add(text.as_bytes());
        }
        lines
    }

    /// Returns why the build failed. `message` is the engine's reason.
    pub(super) fn into_failure(self, message: &str) -> BuildFailure {
        let Self { mut steps, current, .. } = self;
        let failed =
            steps.values_mut().filter(|step| step.error.is_some()).max_by_key(|step| step.number).map(std::mem::take);
        let failed = failed.or_else(|| steps.remove(&current));
        let Some(step) = failed else {
            return BuildFailure { step: None, reason: message.to_owned(), output: Vec::new() };
        };
        let reason = exit_code(step.error.as_deref().unwrap_or(message));
        BuildFailure { step: Some(step.name), reason, output: step.output.into_lines() }
    }
}

/// Shortens the engine's message about a failed command, which repeats the command.
fn exit_code(message: &str) -> String {
    let code = |mark: &str| message.rsplit_once(mark).map(|(_, code)| code.trim().to_owned());
    let code = code("exit code: ").or_else(|| code("returned a non-zero code: "));
    code.map_or_else(|| message.to_owned(), |code| format!("exit code {code}"))
}

/// The last lines of a step's output.
#[derive(Debug, Default)]
struct StepOutput {
    lines: VecDeque<String>,
    /// The current line, which has not ended yet.
    open: Vec<u8>,
}

impl StepOutput {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                // A terminal would overwrite the line here.
                b'\r' => {}
                _ if self.open.len() < MAX_LINE_BYTES => self.open.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = strip_str(&String::from_utf8_lossy(&self.open)).to_string();
        self.open.clear();
        if self.lines.len() == MAX_OUTPUT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn into_lines(mut self) -> Vec<String> {
        if !self.open.is_empty() {
            self.end_line();
        }
        while self.lines.back().is_some_and(|line| line.trim().is_empty()) {
            self.lines.pop_back();
        }
        self.lines.into()
    }
}

#[cfg(test)]
mod tests {
    use bollard::moby::buildkit::v1::VertexLog;

    use super::*;

    fn vertex(name: &str, started: Option<i64>, completed: Option<i64>) -> Vertex {
        let time = |seconds: i64| {
            let mut vertex = Vertex::default();
            vertex.started.get_or_insert_default().seconds = seconds;
            vertex.started.unwrap()
        };
        Vertex {
            digest: name.to_owned(),
            name: name.to_owned(),
            started: started.map(time),
            completed: completed.map(time),
            ..Vertex::default()
        }
    }

    fn log(name: &str, text: &str) -> StatusResponse {
        let log = VertexLog { vertex: name.to_owned(), msg: text.as_bytes().to_vec(), ..VertexLog::default() };
        StatusResponse { logs: vec![log], ..StatusResponse::default() }
    }

    fn status(vertexes: Vec<Vertex>) -> StatusResponse {
        StatusResponse { vertexes, ..StatusResponse::default() }
    }

    #[test]
    fn build_progress_reports_the_start_and_end_of_steps() {
        let mut progress = BuildProgress::default();
        let internal = vertex("[internal] load build definition", Some(0), Some(0));
        assert!(progress.add_buildkit(status(vec![internal, vertex("RUN b", None, None)])).is_empty());
        assert_eq!(progress.add_buildkit(status(vec![vertex("FROM a", Some(1), None)])), ["#1 FROM a"]);
        assert!(progress.add_buildkit(status(vec![vertex("FROM a", Some(1), None)])).is_empty());
        assert_eq!(progress.add_buildkit(status(vec![vertex("FROM a", Some(1), Some(3))])), ["#1 done in 2.0 s"]);
        let cached = Vertex { cached: true, ..vertex("RUN b", Some(3), Some(3)) };
        assert_eq!(progress.add_buildkit(status(vec![cached.clone()])), ["#2 RUN b", "#2 cached"]);
        assert!(progress.add_buildkit(status(vec![cached])).is_empty());
    }

    #[test]
    fn build_failure_ends_with_the_output_of_the_step() {
        let mut progress = BuildProgress::default();
        progress.add_buildkit(status(vec![vertex("COPY", Some(1), None), vertex("RUN pip", Some(1), None)]));
        progress.add_buildkit(log("COPY", "not this\n"));
        for line in 0..100 {
            progress.add_buildkit(log("RUN pip", &format!("line {line}\n")));
        }
        progress.add_buildkit(log("RUN pip", "\x1b[31mERROR: no \x1b[0mmatch"));
        progress.add_buildkit(log("RUN pip", "ing distribution\n\n"));
        let failed = Vertex {
            error: "process \"/bin/sh -c pip\" did not complete successfully: exit code: 1".to_owned(),
            ..vertex("RUN pip", Some(1), Some(2))
        };
        progress.add_buildkit(status(vec![failed]));
        let failure = progress.into_failure("failed to solve");
        assert_eq!(failure.output.len(), MAX_OUTPUT_LINES - 1);
        let text = failure.to_string();
        assert!(text.starts_with("the build failed at `RUN pip`: exit code 1\nline "), "{text}");
        assert!(text.ends_with("\nline 99\nERROR: no matching distribution"), "{text}");
    }

    #[test]
    fn build_progress_reports_steps_of_the_classic_builder() {
        let mut progress = BuildProgress::default();
        assert_eq!(progress.add_classic("Step 1/2 : FROM a\n"), ["Step 1/2 : FROM a"]);
        assert!(progress.add_classic(" ---> 1234\n").is_empty());
        assert_eq!(progress.add_classic("Step 2/2 : RUN pip\n"), ["Step 2/2 : RUN pip"]);
        assert!(progress.add_classic(" ---> Running in 1234\n").is_empty());
        assert!(progress.add_classic("ERROR: no\n").is_empty());
        assert!(progress.add_classic("Removing intermediate container 1234\n").is_empty());
        let text = progress.into_failure("The command '/bin/sh -c pip' returned a non-zero code: 1").to_string();
        assert_eq!(text, "the build failed at `RUN pip`: exit code 1\nERROR: no");
    }

    #[test]
    fn build_failure_without_step_is_the_engine_s_message() {
        let text = BuildProgress::default().into_failure("no such image").to_string();
        assert_eq!(text, "the build failed: no such image");
    }
}
