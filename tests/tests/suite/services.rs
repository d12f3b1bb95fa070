//! `azure_devops` and `rlm_query`: what they ask of their services, what they may change there, and that nobody sees their tokens. The
//! services are `tests/data/internet/services.py`.

use std::fs;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, matrix};
use serde_json::{Value, json};

use super::network::{Internet, on_the_internet};

/// Token that services.py knows, and that no other text is like.
const TOKEN: &str = "azure-token-8842cc";
/// The token as a password of a user without a name, in base64.
const TOKEN_IN_BASE64: &str = "OmF6dXJlLXRva2VuLTg4NDJjYw==";
const KEY: &str = "variable-secret-3f9a77";

/// A command of callgate's, where Azure DevOps is configured.
fn run(internet: &Internet, variables: &[(&str, &str)], words: &[&str]) -> ProgramOutcome {
    let state = internet.env.outside().join("state");
    let given = [
        ("AZURE_DEVOPS_ORG", "acme"),
        ("AZURE_DEVOPS_URL", "https://good.example"),
        ("AZURE_DEVOPS_PAT", TOKEN),
        ("THE_KEY", KEY),
    ];
    let run = internet.env.weakened().variable("XDG_STATE_HOME", &state.display().to_string());
    let with = |run: ProgramRunner, (name, value): &(&str, &str)| run.variable(name, value);
    let run = variables.iter().fold(given.iter().fold(run, with), with);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    internet.on(run).run(&[&[binary.as_str()], words].concat())
}

/// A call in a session of its own.
struct ServiceCaller<'a> {
    internet: &'a Internet,
    variables: Vec<(&'a str, &'a str)>,
    manifest: String,
}

/// Grants the host, and asks about nothing.
const GRANTED: &str = "mode = \"yolo\"\nextra = [\"azure_devops\"]\n[requires.net]\nhosts = [\"good.example\"]\n";

impl<'a> ServiceCaller<'a> {
    fn new(internet: &'a Internet, manifest: &str) -> Self {
        Self { internet, variables: Vec::new(), manifest: manifest.to_owned() }
    }

    fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.variables.push((name, value));
        self
    }

    fn call(&self, tool: &str, arguments: &Value) -> (i32, Value) {
        let manifest = self.internet.env.file("m.toml", &self.manifest).text().to_owned();
        // As an agent makes it: nobody has approved of it by typing it.
        let words = ["call", "--asked-by", "agent", "--manifest", &manifest, tool, &arguments.to_string()];
        let ended = run(self.internet, &self.variables, &words);
        for secret in [TOKEN, TOKEN_IN_BASE64, KEY] {
            assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{ended:?}");
        }
        let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended.status.code().unwrap(), envelope)
    }

    /// The result of a call that succeeds.
    fn done(&self, arguments: &Value) -> Value {
        let (status, envelope) = self.call("azure_devops", arguments);
        assert_eq!((status, &envelope["data"]["untrusted"]), (0, &json!(true)), "{arguments}: {envelope}");
        assert_eq!(envelope["data"]["operation"], arguments["operation"], "{envelope}");
        envelope["data"]["result"].clone()
    }

    /// The status and the error of one that does not, after which the service is as it was.
    fn fails(&self, arguments: &Value) -> (i32, String) {
        let before = self.held();
        let (status, envelope) = self.call("azure_devops", arguments);
        assert_ne!(status, 0, "{envelope}");
        assert_eq!(self.held(), before, "{envelope}");
        (status, envelope["error_text"].as_str().unwrap().to_owned())
    }

    /// Content of the service.
    fn held(&self) -> String {
        let log = self.internet.servers();
        fs::read_to_string(log.replace(".servers", ".azure")).unwrap_or_default()
    }
}

/// S4-20, S4-21, X4-16: work items are made, found, read, changed, linked and spoken about, as the service wants to be asked; its
/// refusals come back in its words. The token is egress's alone.
#[test]
fn s4_20_s4_21_x4_16_work_items_are_made_and_found_and_changed() {
    on_the_internet(|internet| {
        let azure = ServiceCaller::new(internet, GRANTED).with("AZURE_DEVOPS_PROJECT", "Web Shop");
        let create = |title: &str, kind: &str| {
            azure.done(&json!({
                "operation": "create", "work_item_type": kind, "title": title, "fields": { "Microsoft.VSTS.Common.Priority": 2 },
            }))
        };
        let first = create("Ann's \"first\" / ü", "User Story");
        assert_eq!((&first["id"], &first["rev"]), (&json!(1), &json!(1)));
        assert_eq!(first["fields"]["System.Title"], "Ann's \"first\" / ü");
        assert_eq!(first["fields"]["System.CreatedBy"], "Ann <ann@acme.example>");
        create("second", "Task");
        let update = json!({ "operation": "update", "work_item_id": 2, "fields": { "System.State": "Active" } });
        assert_eq!(azure.done(&update)["rev"], 2);

        let query = "SELECT [System.Id] FROM WorkItems WHERE [System.State] = 'Active'";
        let found = azure.done(&json!({ "operation": "search", "wiql": query }));
        assert_eq!((found.as_array().unwrap().len(), &found[0]["fields"]["System.Title"]), (1, &json!("second")));
        let all = azure.done(&json!({ "operation": "search", "wiql": "SELECT [System.Id] FROM WorkItems" }));
        let ids: Vec<&Value> = all.as_array().unwrap().iter().map(|item| &item["id"]).collect();
        assert_eq!(ids, [1, 2], "in the order of the query");
        assert!(internet.seen().contains("%24top=50&"), "the default");
        let none = azure.done(&json!({ "operation": "search", "wiql": query.replace("Active", "Done"), "top": 1 }));
        assert_eq!(none, json!([]));

        for (link, relation, back) in [
            ("parent", "System.LinkTypes.Hierarchy-Reverse", "System.LinkTypes.Hierarchy-Forward"),
            ("related", "System.LinkTypes.Related", "System.LinkTypes.Related"),
            ("successor", "System.LinkTypes.Dependency-Forward", "System.LinkTypes.Dependency-Reverse"),
        ] {
            let args = json!({ "operation": "link", "work_item_id": 2, "target_work_item_id": 1, "link_type": link });
            let has = |item: &Value, rel| item["relations"].as_array().unwrap().iter().any(|one| one["rel"] == rel);
            assert!(has(&azure.done(&args), relation), "{link}");
            assert!(has(&azure.done(&json!({ "operation": "get", "work_item_id": 1 })), back), "{link}");
        }
        azure.done(&json!({ "operation": "add_comment", "work_item_id": 1, "comment": "said" }));
        let comments = azure.done(&json!({ "operation": "get_comments", "work_item_id": 1 }));
        assert_eq!((&comments["count"], &comments["comments"][0]["text"]), (&json!(1), &json!("said")));
        let history = azure.done(&json!({ "operation": "get_history", "work_item_id": 2 }));
        assert_eq!(history["value"][1]["fields"]["System.State"], json!({ "oldValue": "New", "newValue": "Active" }));
        let projects = azure.done(&json!({ "operation": "list_projects" }));
        assert_eq!(projects["value"][0]["name"], "Web Shop");

        let (status, error) = azure.fails(&json!({ "operation": "get", "work_item_id": 99 }));
        assert!(status == 1 && error.contains("status 404: TF401232: Work item 99"), "{error}");
        let (_, error) = azure.fails(&json!({ "operation": "get", "work_item_id": 1, "project": "None/../Other" }));
        assert!(error.contains("does not exist: None/../Other"), "{error}");
        let other = ServiceCaller::new(internet, GRANTED).with("AZURE_DEVOPS_PAT", "another-token");
        let (status, error) = other.fails(&json!({ "operation": "get", "work_item_id": 1 }));
        assert!(status == 1 && error.contains("AZURE_DEVOPS_PAT is not accepted"), "{error}");
    });
}

/// S4-23: a parameter of another operation is an error that says so, before anybody is asked.
#[test]
fn s4_23_a_parameter_of_another_operation_of_azure_devops() {
    matrix(&[Host::Namespaces], |target| {
        let Some(internet) = Internet::new(target, "") else { return };
        let azure = ServiceCaller::new(&internet, GRANTED);
        let (status, error) = azure.fails(&json!({ "operation": "get", "work_item_id": 1, "wiql": "SELECT" }));
        assert!(status == 65 && error.contains("`wiql`: it belongs to search, and not to get"), "{error}");
        let (_, error) = azure.fails(&json!({ "operation": "get_comments", "work_item_id": 1 }));
        assert!(error.contains("AZURE_DEVOPS_PROJECT names none"), "{error}");
        for hidden in ["organization_url", "tls_by_egress"] {
            assert_eq!(azure.fails(&json!({ "operation": "list_projects", hidden: "x" })).0, 65);
        }
        assert_eq!(internet.seen(), "", "nobody was asked");
        assert!(azure.done(&json!({ "operation": "list_projects" })).is_object(), "the control");
    });
}

/// S4-21, X4-16: with AZURE_DEVOPS_READONLY nothing is changed, and the operations that would are not offered.
#[test]
fn s4_21_x4_16_an_organization_that_is_only_read() {
    on_the_internet(|internet| {
        let create = json!({ "operation": "create", "project": "Web Shop", "work_item_type": "Task", "title": "x" });
        ServiceCaller::new(internet, GRANTED).done(&create);
        internet.seen();
        let reads = ServiceCaller::new(internet, GRANTED).with("AZURE_DEVOPS_READONLY", "true");
        for change in [
            create,
            json!({ "operation": "add_comment", "project": "Web Shop", "work_item_id": 1, "comment": "x" }),
            json!({ "operation": "update", "work_item_id": 1, "fields": { "System.State": "x" } }),
            json!({ "operation": "link", "work_item_id": 1, "target_work_item_id": 1, "link_type": "related" }),
        ] {
            let (status, error) = reads.fails(&change);
            assert!(status == 65 && error.contains("AZURE_DEVOPS_READONLY is set"), "{error}");
        }
        assert_eq!(internet.seen(), "", "nobody was asked");
        assert_eq!(reads.done(&json!({ "operation": "get", "work_item_id": 1 }))["rev"], 1, "the control");
    });
}

/// Rules and people tell what reads from what changes, by the operation and its place; and what only reads is never let to change.
#[test]
fn rules_tell_the_operations_of_azure_devops_apart() {
    matrix(&[Host::Namespaces], |target| {
        let Some(internet) = Internet::new(target, "") else { return };
        let create = json!({ "operation": "create", "project": "Web Shop", "work_item_type": "Task", "title": "x" });
        let get = json!({ "operation": "get", "work_item_id": 1 });
        let asking = GRANTED.replace("yolo", "ask");
        let with_rule = |pattern: &str| {
            format!("{asking}[[rules]]\npermission = \"azure_devops\"\npattern = \"{pattern}\"\naction = \"allow\"\n")
        };
        ServiceCaller::new(&internet, GRANTED).done(&create);
        let asks = ServiceCaller::new(&internet, &asking);
        let (status, error) = asks.fails(&get);
        assert_eq!(status, 77, "{error}");
        let reads = ServiceCaller::new(&internet, &with_rule("get in *"));
        assert_eq!(reads.done(&get)["id"], 1);
        let (status, error) = reads.fails(&create);
        assert_eq!(status, 77, "{error}");
        let makes = ServiceCaller::new(&internet, &with_rule("create in https://good.example/acme/Web%20Shop: *"));
        assert_eq!(makes.done(&create)["id"], 2);
        let elsewhere = json!({ "operation": "create", "project": "Other", "work_item_type": "Task", "title": "x" });
        assert_eq!(makes.fails(&elsewhere).0, 77);
        // Neither a name that a URL's reader takes for another, nor one that leads out of the organization.
        for project in ["Web\t Shop", ".\t.", ".."] {
            let odd = json!({ "operation": "create", "project": project, "work_item_type": "Task", "title": "x" });
            let (status, error) = ServiceCaller::new(&internet, GRANTED).fails(&odd);
            assert!(status == 65 && error.contains("project"), "{project:?}: {status} {error}");
        }
        // What a profile lets only read has no tool that changes things.
        let profile = GRANTED.replace("mode = \"yolo\"\n", "profile = \"readonly\"\n");
        let (status, error) = ServiceCaller::new(&internet, &profile).fails(&create);
        assert_ne!(status, 0, "{error}");
    });
}

/// S4-20: without organization or token there is no such tool, which is said; a ceiling bounds it; and no other tool or program
/// has the token.
#[test]
fn s4_20_the_token_is_for_azure_devops_alone() {
    on_the_internet(|internet| {
        let list = json!({ "operation": "list_projects" });
        for variable in ["AZURE_DEVOPS_ORG", "AZURE_DEVOPS_PAT"] {
            let (status, error) = ServiceCaller::new(internet, GRANTED).with(variable, "").fails(&list);
            assert!(status != 0 && error.contains("set AZURE_DEVOPS_ORG and AZURE_DEVOPS_PAT"), "{error}");
        }
        let elsewhere = GRANTED.replace("requires", "ceiling").replace("good.example", "other.example");
        let (status, error) = ServiceCaller::new(internet, &elsewhere).fails(&list);
        assert!(status == 77 && error.contains("good.example:443"), "{error}");
        assert_eq!(internet.seen(), "", "nobody was asked");

        let azure = ServiceCaller::new(internet, GRANTED);
        let (status, envelope) = azure.call("web_fetch", &json!({ "url": "https://good.example/acme/_apis/projects" }));
        let page = envelope["data"]["title"].as_str().unwrap();
        assert!(status == 0 && page.contains("Sign In"), "it came without a token: {envelope}");
        let look = "env; cat /proc/self/environ /proc/*/environ /proc/*/cmdline 2>/dev/null; true";
        internet.env.workspace_file("look.sh", look);
        let (status, envelope) = azure.call("bash", &json!({ "command": "sh ./look.sh" }));
        assert!(status == 0 && envelope.to_string().contains("PATH="), "the control: {envelope}");
        assert!(azure.done(&list).is_object(), "the control");
    });
}

const ASKING: &str = "extra = [\"rlm_query\"]\n[requires.net]\nhosts = [\"good.example\"]\n[net.rlm]\nurl = \"https://good.example/v1\"\n\
                      [[net.credentials]]\nhost = \"good.example\"\nheader = \"Authorization\"\nprefix = \"Bearer \"\nenv = \"THE_KEY\"\n";

/// S2-22, X2-19, X2-5: sixteen questions are asked side by side, each is answered in its place or has its error, and nobody is asked.
#[test]
fn s2_22_x2_19_x2_5_questions_to_a_model_go_side_by_side() {
    on_the_internet(|internet| {
        let asks = ServiceCaller::new(internet, ASKING);
        let (status, envelope) = asks.call("rlm_query", &json!({ "prompt": "why?" }));
        let data = &envelope["data"];
        assert_eq!(
            (status, &data["untrusted"], &data["model"]),
            (0, &json!(true), &json!("deepseek-v4-flash")),
            "{envelope}"
        );
        assert_eq!(data["answers"], json!([{ "text": "deepseek-v4-flash 4096: why?" }]), "{envelope}");

        // The service answers none of them before all have come.
        let prompts: Vec<String> = (0..16).map(|number| format!("meet {number}")).collect();
        let (status, envelope) = asks.call("rlm_query", &json!({ "prompts": prompts, "max_tokens": 7, "model": "m" }));
        let wanted: Vec<Value> = prompts.iter().map(|prompt| json!({ "text": format!("m 7: {prompt}") })).collect();
        assert_eq!((status, &envelope["data"]["answers"]), (0, &json!(wanted)), "{envelope}");

        let (status, envelope) = asks.call("rlm_query", &json!({ "prompts": ["a", "fail", "b"] }));
        let answers = &envelope["data"]["answers"];
        assert_eq!((status, answers[1]["error"].as_str()), (0, Some("it answers with status 500: it has failed")));
        assert!(answers[0]["text"].is_string() && answers[2]["text"].is_string(), "{envelope}");

        internet.seen();
        let (status, envelope) = asks.call("rlm_query", &json!({ "prompts": vec!["x"; 17] }));
        let error = envelope["error_text"].as_str().unwrap();
        assert!(status == 65 && error.contains("there are 17") && error.contains("at most 16"), "{error}");
        let elsewhere = ServiceCaller::new(
            internet,
            &ASKING.replace("requires.net]\nhosts = [\"good", "ceiling.net]\nhosts = [\"other"),
        );
        let (status, envelope) = elsewhere.call("rlm_query", &json!({ "prompt": "x" }));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
        let (status, envelope) =
            ServiceCaller::new(internet, "extra = [\"rlm_query\"]\n").call("rlm_query", &json!({ "prompt": "x" }));
        let error = envelope["error_text"].as_str().unwrap();
        assert!(status != 0 && error.contains("[net.rlm]"), "{error}");
        assert_eq!(internet.seen(), "", "nobody was asked");
        let wrong = asks.with("THE_KEY", "another-key").call("rlm_query", &json!({ "prompt": "x" }));
        let error = wrong.1["data"]["answers"][0]["error"].as_str().unwrap();
        assert!(error.contains("its key is missing, or not accepted"), "{error}");
    });
}
