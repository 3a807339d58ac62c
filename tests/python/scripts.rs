//! `mlserver start model.py`: scripts that end in `kserve.ModelServer().start([...])`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::worker_models::{has_ended, pid};
use crate::support::{Folder, ServerBuilder, ServerExit, TestServer, repository_path, run_mlserver, wait_until};

/// The beginning of scripts: a model that multiplies by `factor`.
const MODEL: &str = "
import argparse, asyncio, os, sys, threading, time
import kserve
from kserve import InferOutput, InferResponse

class Times(kserve.Model):
    def __init__(self, name, factor=2):
        super().__init__(name)
        self.factor = factor
        self.loads = 0

    def load(self):
        self.loads += 1
        self.ready = True
        return True

    def predict(self, payload, headers=None):
        values = [value * self.factor for value in payload.inputs[0].data] + [self.loads]
        output = InferOutput(name='times', shape=[len(values)], datatype='FP64', data=values)
        return InferResponse(response_id=payload.id, model_name=self.name, infer_outputs=[output])
";

const REQUEST: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","data":[1.5,4.0]}]}"#;

/// A server of a script that begins with [`MODEL`]; `None` without an interpreter.
fn starting(script: &str) -> Option<ServerBuilder> {
    let folder = Folder::new().file("model.py", format!("{MODEL}{script}"));
    Some(ServerBuilder::new(folder).python(&python()?).argument("model.py"))
}

#[track_caller]
fn failing(starting: ServerBuilder) -> ServerExit {
    let ended = starting.run();
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    ended
}

/// Returns what a model answers: the products, and how often it was loaded.
#[track_caller]
fn answer(server: &TestServer, model: &str) -> Value {
    server.post(&format!("/v2/models/{model}/infer"), REQUEST).ok()["outputs"][0]["data"].clone()
}

#[test]
fn script_serves_every_model_that_it_starts() {
    let endings = [
        "kserve.ModelServer().start([Times('a'), Times('b', 3)])",
        "if __name__ == '__main__':\n    kserve.ModelServer().start([Times('a'), Times('b', 3)])",
        "kserve.ModelServer().start({'a': Times('other'), 'b': Times('b', 3)})",
        "from kserve import ModelServer as Server\nserver = Server()\nserver.register_model(Times('a'))\nserver.start([Times('b', 3)])",
        "async def main():\n    kserve.ModelServer().start([Times('a'), Times('b', 3)])\nasyncio.run(main())",
        "threading.Thread(target=lambda: kserve.ModelServer().start([Times('a'), Times('b', 3)])).start()\ntime.sleep(1000)",
        "class Mine(kserve.ModelServer):\n    def start(self, models):\n        super().start(models)\nMine().start([Times('a'), Times('b', 3)])",
    ];
    for ending in endings {
        let Some(starting) = starting(ending) else { return };
        let server = starting.start();
        assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]), "{ending}");
        assert_eq!(answer(&server, "b"), json!([4.5, 12.0, 1.0]), "{ending}");
        let index = server.post("/v2/repository/index", "{}").ok();
        let entry = |name: &str| json!({"name": name, "state": "READY", "reason": ""});
        assert_eq!(index, json!([entry("a"), entry("b")]), "{ending}");
    }
}

#[test]
fn script_gets_its_arguments_as_python_would_pass_them() {
    let script = "
parser = argparse.ArgumentParser(parents=[kserve.model_server.parser])
parser.add_argument('--factor', type=int, default=2)
args, rest = parser.parse_known_args()
assert sys.argv[0].endswith('model.py') and __file__ == sys.argv[0], sys.argv
assert os.path.dirname(__file__) in sys.path
assert rest == ['data.csv'], rest
kserve.ModelServer().start([Times(args.model_name, args.factor)])
";
    for flags in [
        &["--model_name", "mine", "--factor=5", "data.csv"][..],
        &["--log-level", "info", "--model_name=mine", "data.csv", "--factor", "5"],
        &["--", "--factor", "5", "--model_name", "mine", "data.csv"],
    ] {
        let Some(starting) = starting(script) else { return };
        let server = starting.flags(flags).start();
        assert_eq!(answer(&server, "mine"), json!([7.5, 20.0, 1.0]), "{flags:?}");
    }
}

#[test]
fn script_options_are_settings_below_all_others() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let script =
        format!("kserve.ModelServer(http_port={port}, workers=2, max_threads=9, grace_period=7).start([Times('a')])");
    let Some(own) = starting(&script) else { return };
    let ended = failing(own.without("MLSERVER_HTTP_PORT"));
    assert!(ended.stderr.contains(&format!("the HTTP server cannot listen on 127.0.0.1:{port}: ")), "{}", ended.stderr);
    // The environment, and the command line, take precedence.
    let server = starting(&script).unwrap().start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    server.wait_for_log("Started a worker. worker=default-1");
    let ended = server.terminate();
    assert_eq!(ended.stdout.matches("`model.py` sets `").count(), 1, "{}", ended.stdout);
    assert!(ended.stdout.contains("`model.py` sets `max_threads`, which has no effect: a model's parameter `threads`"));
    assert!(ended.stdout.contains("answering the requests in flight, for at most 7 s"), "{}", ended.stdout);
    let server = starting(&script).unwrap().without("MLSERVER_HTTP_PORT").flags(&["--http-port", "0"]).start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    // An exception handler is never called, by KServe either.
    let script = "server = kserve.ModelServer()\n\
                  server.register_exception_handler(lambda loop, context: None)\n\
                  server.start([Times('a')])";
    let server = starting(script).unwrap().start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    let ended = server.terminate();
    let warning =
        "`model.py` sets `exception_handler`, which has no effect: exceptions that no task handles are logged";
    assert_eq!(ended.stdout.matches(warning).count(), 1, "{}", ended.stdout);
    // As options of the script's own command line, too.
    let script = "args, _ = kserve.model_server.parser.parse_known_args()\n\
                  kserve.ModelServer(http_port=args.http_port).start([Times('a')])";
    let arguments = format!("--http_port={port}");
    let starting = starting(script).unwrap().without("MLSERVER_HTTP_PORT").flags(&[&*arguments.leak()]);
    assert!(failing(starting).stderr.contains("the HTTP server cannot listen on "));
    // A value that is no port is named with the script.
    let script = "kserve.ModelServer(http_port=70000).start([Times('a')])";
    let ended = failing(self::starting(script).unwrap().without("MLSERVER_HTTP_PORT"));
    assert!(
        ended.stderr.contains("`http_port` in `model.py`: expected an integer from 0 to 65535"),
        "{}",
        ended.stderr
    );
}

#[test]
fn script_that_loads_its_models_is_not_loaded_again() {
    let Some(starting) = starting("model = Times('a')\nmodel.load()\nkserve.ModelServer().start([model])") else {
        return;
    };
    let server = starting.start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
}

#[test]
fn script_stays_inside_start_until_its_models_are_unloaded() {
    let script = "
class Resource:
    open = False
    def __enter__(self):
        self.open = True
        return self
    def __exit__(self, *error):
        self.open = False
        open('closed', 'a').write('x')

class Using(Times):
    def predict(self, payload, headers=None):
        assert resource.open
        return super().predict(payload, headers)

with Resource() as resource:
    kserve.ModelServer().start([Using('a'), Times('b')])
";
    let Some(starting) = starting(script) else { return };
    let server = starting.start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    assert_eq!(server.post("/v2/repository/models/b/unload", "").status, 200);
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    // A reload reads the script again.
    let text = fs::read_to_string(server.folder.path("model.py")).unwrap();
    fs::write(server.folder.path("model.py"), text.replace("Using('a')", "Using('a', 10)")).unwrap();
    assert_eq!(server.post("/v2/repository/models/a/load", "").status, 200);
    assert_eq!(answer(&server, "a"), json!([15.0, 40.0, 1.0]));
    assert_eq!(server.post("/v2/repository/models/nope/load", "").status, 404);
    let closed = server.folder.path("closed");
    wait_until("the first run ends", || fs::read_to_string(&closed).is_ok_and(|text| text == "x"));
}

#[test]
fn script_that_starts_nothing_is_an_error_with_the_end_of_its_output() {
    let cases = [
        ("print('almost')", &["it ended without calling `kserve.ModelServer().start`", "\n  almost\n"][..]),
        (
            "raise ValueError('no such bucket')",
            &["it raised ValueError: no such bucket before", "line 21, in <module>"],
        ),
        ("def broken(:", &["it raised SyntaxError: ", "def broken(:"]),
        ("import no_such_module", &["it raised ModuleNotFoundError: No module named 'no_such_module'"]),
        ("sys.exit(3)", &["it exited with 3 before it called `ModelServer.start`", "wrote nothing"]),
        (
            "argparse.ArgumentParser().parse_args(['--oops'])",
            &["it exited with 2 before", "error: unrecognized arguments: --oops"],
        ),
        ("os._exit(5)", &["its process ended with exit status: 5 before"]),
        ("os.kill(os.getpid(), 9)", &["its process ended with signal: 9 (SIGKILL) before"]),
        (
            "os.close(0); sys.stdout.close(); sys.stderr.close(); 1 / 0",
            &["it raised ZeroDivisionError: division by zero"],
        ),
        ("kserve.ModelServer().start([])", &["`ModelServer.start` got no models"]),
        ("kserve.ModelServer().start([Times(None)])", &["got a model without a name: Times, named None"]),
        ("kserve.ModelServer().start({'a': 5})", &["got `a`, a int without `predict`"]),
        (
            "kserve.ModelServer().start([Times(str(i)) for i in range(1001)])",
            &["it starts 1001 models, but at most 1000 can be served"],
        ),
        ("kserve.ModelServer().start([Times('x' * (2 << 20))])", &["before it called `ModelServer.start`"]),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
            &["it raised Odd: (a message that cannot be shown) before"],
        ),
        // Children that keep the pipes and the socket open.
        ("if os.fork() == 0:\n    time.sleep(1000)\nraise ValueError('parent')", &["it raised ValueError: parent"]),
        ("if os.fork() == 0:\n    time.sleep(1000)\nos._exit(4)", &["its process ended with exit status: 4"]),
        ("threading.Thread(target=time.sleep, args=[1000]).start()\nraise ValueError('main')", &["ValueError: main"]),
    ];
    for (script, expected) in cases {
        let Some(starting) = starting(script) else { return };
        let ServerExit { stderr, .. } = failing(starting);
        assert!(stderr.starts_with("error: cannot serve `model.py`\n  caused by: "), "{script}: {stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{script}: `{part}` is not in {stderr}");
        }
    }
}

#[test]
fn script_that_hangs_or_floods_is_stopped() {
    let hanging = [
        "def stuck():\n    time.sleep(1000)\nprint('waiting', flush=True)\nstuck()",
        "def stuck():\n    while True: print('y' * 1000)\nstuck()",
        "def stuck():\n    while True: pass\nif os.fork() == 0:\n    stuck()\nstuck()",
    ];
    for script in hanging {
        let Some(starting) = starting(script) else { return };
        let ServerExit { stderr, .. } = failing(starting.flags(&["--set", "worker_load_timeout=4"]));
        assert!(stderr.contains("it did not call `ModelServer.start` within 4 s (`worker_load_timeout`)"), "{stderr}");
        assert!(stderr.contains("in stuck"), "{stderr}");
        assert!(stderr.len() < 64 << 10, "{}", stderr.len());
    }
    let flood =
        "for i in range(200000): print('line', i)\nsys.stdout.write('z' * (32 << 20))\nraise ValueError('at last')";
    let ServerExit { stderr, .. } = failing(starting(flood).unwrap());
    assert!(stderr.contains("ValueError: at last") && stderr.len() < 64 << 10, "{}", stderr.len());
}

#[test]
fn script_with_children_and_threads_is_served() {
    let scripts = [
        "if os.fork() == 0:\n    time.sleep(1000)\nkserve.ModelServer().start([Times('a')])",
        "os.fork()\nkserve.ModelServer().start([Times('a')])",
        "threading.Thread(target=time.sleep, args=[1000]).start()\nkserve.ModelServer().start([Times('a')])",
        "import multiprocessing\nif __name__ == '__main__':\n    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        \
         assert pool.map(abs, [-2]) == [2]\n        kserve.ModelServer().start([Times('a')])",
    ];
    for script in scripts {
        let Some(starting) = starting(script) else { return };
        let server = starting.start();
        assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]), "{script}");
        assert_eq!(server.terminate().code, Some(0), "{script}");
    }
}

#[test]
fn script_runs_in_workers_as_on_the_main_thread() {
    let script = "
import signal, multiprocessing
signal.signal(signal.SIGTERM, lambda *arguments: None)
loop = asyncio.get_event_loop_policy().get_event_loop()
assert loop.run_until_complete(asyncio.sleep(0, 5)) == 5
multiprocessing.set_start_method('spawn')
kserve.ModelServer().start([Times('a'), Times('b', 3)])
";
    for flags in [&["--parallel-workers", "0"][..], &["--parallel-workers", "2"]] {
        let Some(starting) = starting(script) else { return };
        let server = starting.flags(flags).start();
        assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]), "{flags:?}");
        assert_eq!(answer(&server, "b"), json!([4.5, 12.0, 1.0]), "{flags:?}");
        assert_eq!(server.terminate().code, Some(0));
    }
}

#[test]
fn script_runs_again_in_the_worker_that_replaces_a_crashed_one() {
    let script = "
class Crashes(Times):
    def predict(self, payload, headers=None):
        if payload.id == 'crash':
            os._exit(3)
        return super().predict(payload, headers)

kserve.ModelServer().start([Crashes('a'), Times('b')])
";
    let Some(starting) = starting(script) else { return };
    let server = starting.start();
    assert_eq!(answer(&server, "a"), json!([3.0, 8.0, 1.0]));
    let crash = REQUEST.replacen('{', r#"{"id":"crash","#, 1);
    assert!(server.post("/v2/models/a/infer", crash).status >= 500);
    for model in ["a", "b"] {
        let path = format!("/v2/models/{model}/infer");
        wait_until("the model is served again", || server.post(&path, REQUEST).status == 200);
        assert_eq!(answer(&server, model), json!([3.0, 8.0, 1.0]));
    }
}

#[test]
fn script_process_ends_with_the_server() {
    let Some(python) = python() else { return };
    let script =
        "import os, time\nopen('pid.new', 'w').write(str(os.getpid()))\nos.rename('pid.new', 'pid')\ntime.sleep(1000)";
    let folder = Folder::new().file("model.py", script);
    for signal in [Signal::TERM, Signal::KILL] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlserver"));
        command.args(["start", "model.py"]).current_dir(folder.root()).env_clear();
        command.env("MLSERVER_PYTHON_EXECUTABLE", &python).env("XDG_CACHE_HOME", repository_path("target/test-cache"));
        let mut server = command.stdout(Stdio::null()).spawn().unwrap();
        let mut process = None;
        wait_until("the script runs", || {
            process = fs::read_to_string(folder.path("pid")).ok();
            process.is_some()
        });
        kill_process(Pid::from_child(&server), signal).unwrap();
        assert_eq!(server.wait().unwrap().signal(), Some(signal.as_raw()));
        let process = pid(process.unwrap().trim().parse().unwrap());
        wait_until("the script ends", || has_ended(process));
        fs::remove_file(folder.path("pid")).unwrap();
    }
}

#[test]
fn script_models_answer_v1_and_call_the_predictor_of_the_command_line() {
    let script = "
class Plus(kserve.Model):
    def load(self):
        self.ready = True

    def preprocess(self, payload, headers=None):
        return {'instances': [[value + 1 for value in row] for row in payload['instances']]}

    def postprocess(self, result, headers=None, response_headers=None):
        return {'of': self.name, **result}

class Direct(Plus):
    def predict(self, payload, headers=None, response_headers=None):
        return {'predictions': payload['instances']}

args, _ = kserve.model_server.parser.parse_known_args()
kserve.ModelServer().start([Plus('iris-xgboost'), Direct('direct')])
";
    let predictor = TestServer::quickstart();
    let arguments = format!("--predictor_host={}", predictor.http);
    let Some(starting) = starting(script) else { return };
    let server = starting.flags(&[&*arguments.leak()]).start();
    let request = r#"{"instances": [[5.2, 1.8, 3.8, 0.8], [4.1, 2.5, 0.4, -0.8]]}"#;
    let answer = server.post("/v1/models/iris-xgboost:predict", request).ok();
    assert_eq!(answer, json!({"of": "iris-xgboost", "predictions": [2, 0]}));
    let answer = server.post("/v1/models/direct:predict", r#"{"instances": [[1, 2]]}"#).ok();
    assert_eq!(answer, json!({"of": "direct", "predictions": [[2, 3]]}));
}

#[test]
fn script_that_fails_in_the_worker_is_a_failed_load() {
    // Only the first run, which finds the models, succeeds.
    let cases = [
        ("raise ValueError('second run')", "it raised ValueError: second run before it called `ModelServer.start`"),
        ("sys.exit(3)", "it exited with 3 before it called `ModelServer.start`"),
        ("kserve.ModelServer().start([Times('b')])", "it no longer starts model `a`, but starts `b`"),
        ("pass", "it ended without calling `kserve.ModelServer().start`"),
    ];
    for (second, expected) in cases {
        let script = format!(
            "if os.path.exists('ran'):\n    {second}\nelse:\n    open('ran', 'w').close()\n    kserve.ModelServer().start([Times('a')])"
        );
        let Some(starting) = starting(&script) else { return };
        let ended = failing(starting);
        assert_eq!(ended.stderr, "error: 1 model failed to load\n", "{second}");
        assert!(ended.stdout.contains(expected), "{second}: {}", ended.stdout);
    }
}

#[test]
fn script_arguments_and_paths_are_checked() {
    let folder = Folder::new().file("folder.py/x", "").file("model.py", "");
    let cases = [
        (&["start", "none.py"][..], 1, "cannot open the script `none.py`: No such file or directory"),
        (&["start", "model.py", "--model-name", "m"], 2, "`--model-name` has no effect on a script"),
        (&["start", ".", "--", "--x"], 2, "arguments after `--` are those of a script, and `.` is not a script"),
        (&["start", "folder.py"], 1, "no model found in `folder.py`"),
        (
            &["infer", "--embedded", "model.py", "-m", "m", "-i", "x.csv", "-o", "y.csv"],
            1,
            "`model.py` is a script: only `mlserver start` can find its models",
        ),
    ];
    for (arguments, code, expected) in cases {
        let output = run_mlserver(folder.root(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn script_is_examined_by_doctor_without_running_it() {
    let Some(python) = python() else { return };
    let folder = Folder::new().file("model.py", "open('ran', 'w')").settings(&json!({
        "http_port": 0, "grpc_port": 0, "metrics_port": 0, "python_executable": python,
    }));
    let output = run_mlserver(folder.root(), &["doctor", "model.py"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let interpreter = python.display();
    for expected in [
        format!("ok       script `model.py` runs in Python: `{interpreter}`"),
        "warning  the script's models are not checked: only `mlserver start model.py` finds them".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected}: {shown}");
    }
    assert!(!folder.path("ran").exists());
    let folder =
        folder.settings(&json!({"http_port": 0, "grpc_port": 0, "metrics_port": 0, "python_executable": "none"}));
    let output = run_mlserver(folder.root(), &["doctor", "model.py"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("problem  script `model.py` runs in Python: cannot run `"), "{shown}");
}

/// A script whose models write what the server calls at shutdown.
fn stopping(record: &Path, stop: &str) -> Option<ServerBuilder> {
    let record = record.display();
    starting(&format!(
        "
def note(text):
    with open('{record}', 'a') as file:
        file.write(text + chr(10))

class Stops(Times):
    def stop(self):
        note('stop ' + self.name)
        {stop}

    def start_engine(self):
        pass

    def stop_engine(self):
        note('stop_engine ' + self.name)

engine = Stops('eng')
engine.engine = True
kserve.ModelServer(grace_period=2).start([Stops('a'), engine])
"
    ))
}

#[test]
fn script_models_are_stopped_in_the_order_of_kserve() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("stopped");
    let Some(starting) = stopping(&record, "time.sleep(0.3)") else { return };
    let server = starting.start();
    answer(&server, "a");
    assert!(!record.exists());
    assert_eq!(server.terminate().code, Some(0));
    assert_eq!(fs::read_to_string(&record).unwrap(), "stop a\nstop eng\nstop_engine eng\n");
}

#[test]
fn script_model_whose_stop_hangs_does_not_keep_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("stopped");
    for stop in ["time.sleep(1000)", "time.sleep(1000) if self.name == 'eng' else None", "raise RuntimeError('odd')"] {
        let _ = fs::remove_file(&record);
        let Some(starting) = stopping(&record, stop) else { return };
        let server = starting.start();
        let started = Instant::now();
        assert_eq!(server.terminate().code, Some(0), "{stop}");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(15), "{stop}: {took:?}");
        let called = fs::read_to_string(&record).unwrap();
        let expected = match stop {
            "time.sleep(1000)" => "stop a\n",
            "raise RuntimeError('odd')" => "stop a\nstop eng\nstop_engine eng\n",
            _ => "stop a\nstop eng\n",
        };
        assert_eq!(called, expected, "{stop}");
    }
}
