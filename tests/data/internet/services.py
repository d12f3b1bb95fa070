"""Services of the suite's Internet: an Azure DevOps with state, which checks what the real one checks, and a model's interface.

What the first holds stays in a file, for each command has an Internet of its own.
"""

import base64
import json
import os
import re
import threading
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "azure-token-8842cc"
KEY = "variable-secret-3f9a77"
PROJECTS = ["Web Shop", "Other"]
TYPES = ["Task", "Bug", "User Story"]
OPPOSITES = {
    "System.LinkTypes.Hierarchy-Forward": "System.LinkTypes.Hierarchy-Reverse",
    "System.LinkTypes.Dependency-Forward": "System.LinkTypes.Dependency-Reverse",
    "System.LinkTypes.Related": "System.LinkTypes.Related",
}
OPPOSITES |= {other: one for one, other in OPPOSITES.items()}
PERSON = {"displayName": "Ann", "uniqueName": "ann@acme.example", "id": "1", "_links": {"avatar": {"href": "x"}}}
LOCK = threading.Lock()


class Refused(Exception):
    """A status and a message."""


def azure(method, target, headers, body, file):
    """A status, a content type and a body."""
    with LOCK:
        state = {"items": {}, "comments": {}, "updates": {}}
        if os.path.exists(file):
            with open(file, encoding="utf-8") as kept:
                state = json.load(kept)
        try:
            # A client with a token that is not known is shown where people sign in.
            if headers.get("Authorization") != "Basic " + base64.b64encode(f":{TOKEN}".encode()).decode():
                return 203, "text/html", b"<html><title>Azure DevOps Services | Sign In</title></html>"
            answer = Organization(state, method, target, headers, body).answer()
        except Refused as refused:
            status, message = refused.args
            body = {"$id": "1", "message": message, "typeKey": "X", "errorCode": 0}
            return status, "application/json; charset=utf-8", json.dumps(body).encode()
        with open(file, "w", encoding="utf-8") as kept:
            json.dump(state, kept)
        return 200, "application/json; charset=utf-8; api-version=7.1", json.dumps(answer).encode()


class Organization:
    def __init__(self, state, method, target, headers, body):
        self.state, self.method, self.headers, self.body = state, method, headers, body
        url = urlsplit(target)
        self.path = [unquote(part) for part in url.path.split("/")][2:]
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.host = headers.get("Host")
        self.project = None

    def answer(self):
        if self.path[0] != "_apis":
            self.project = self.path.pop(0)
            if self.project not in PROJECTS:
                raise Refused(404, f"TF200016: The following project does not exist: {self.project}.")
        path = [part.lower() for part in self.path[1:]]
        is_about_comments = path[-1] == "comments"
        wanted = "7.1-preview.4" if is_about_comments else "7.1"
        if self.query.get("api-version") != wanted:
            raise Refused(400, f"The requested REST API version is wrong: {self.query.get('api-version')}")
        match (self.method, path):
            case ("GET", ["projects"]) if not self.project:
                return {"count": 2, "value": [{"id": name, "name": name, "state": "wellFormed"} for name in PROJECTS]}
            case ("POST", ["wit", "wiql"]):
                return self.wiql(self.json("application/json")["query"])
            case ("POST", ["wit", "workitemsbatch"]):
                asked = self.json("application/json")
                if len(asked["ids"]) > 200:
                    raise Refused(400, "VS403474: You are over the allowed limit of 200 work items")
                items = [self.item(number) for number in asked["ids"]]
                shown = [{**item, "fields": {name: item["fields"][name] for name in asked["fields"] if name in item["fields"]}} for item in items]
                return {"count": len(shown), "value": list(reversed(shown))}
            case ("POST", ["wit", "workitems", kind]) if kind.startswith("$"):
                return self.create(self.path[3][1:])
            case ("GET", ["wit", "workitems", number]):
                return self.item(number)
            case ("PATCH", ["wit", "workitems", number]):
                return self.patch(self.item(number), self.json("application/json-patch+json"))
            case ("GET", ["wit", "workitems", number, "updates"]):
                self.item(number)
                return {"count": len(self.state["updates"][number]), "value": self.state["updates"][number]}
            case ("GET", ["wit", "workitems", number, "comments"]) if self.project:
                self.item(number)
                said = self.state["comments"].get(number, [])
                return {"totalCount": len(said), "count": len(said), "comments": said}
            case ("POST", ["wit", "workitems", number, "comments"]) if self.project:
                self.item(number)
                said = self.state["comments"].setdefault(number, [])
                said.append({"id": len(said) + 1, "text": self.json("application/json")["text"], "createdBy": PERSON})
                return said[-1]
        raise Refused(404, "The controller for the path was not found.")

    def json(self, kind):
        given = self.headers.get("Content-Type", "").split(";")[0]
        if given != kind:
            raise Refused(415, f"VS402948: the content type is {given}, and must be {kind}")
        return json.loads(self.body)

    def item(self, number):
        item = self.state["items"].get(str(number))
        if not item or (self.project and item["fields"]["System.TeamProject"] != self.project):
            raise Refused(404, f"TF401232: Work item {number} does not exist, or you do not have permissions to read it.")
        return item

    def wiql(self, query):
        found = re.fullmatch(r"SELECT \[System.Id\] FROM WorkItems(?: WHERE \[([\w.]+)\] = '((?:[^']|'')*)')?", query)
        if not found:
            raise Refused(400, "TF51006: The query statement is missing a FROM clause.")
        name, value = found[1], (found[2] or "").replace("''", "'")
        items = [item for item in self.state["items"].values() if not name or item["fields"].get(name) == value]
        items = [item for item in items if self.project in (None, item["fields"]["System.TeamProject"])]
        items = items[: int(self.query["$top"])]
        return {"queryType": "flat", "workItems": [{"id": item["id"], "url": self.url(item["id"])} for item in items]}

    def url(self, number):
        return f"https://{self.host}/acme/_apis/wit/workItems/{number}"

    def create(self, kind):
        if kind not in TYPES or not self.project:
            raise Refused(404, f"VS402323: Work item type {kind} does not exist in project {self.project}")
        number = len(self.state["items"]) + 1
        fields = {"System.Id": number, "System.WorkItemType": kind, "System.TeamProject": self.project, "System.State": "New"}
        item = {"id": number, "rev": 0, "fields": {**fields, "System.CreatedBy": PERSON}, "url": self.url(number)}
        changes = self.json("application/json-patch+json")
        self.state["items"][str(number)] = item
        return self.patch(item, changes)

    def patch(self, item, changes):
        if not isinstance(changes, list) or not changes:
            raise Refused(400, "You must pass a valid patch document in the body of the request.")
        changed = {}
        for change in changes:
            path = change["path"]
            if path == "/relations/-" and change["op"] == "add":
                self.link(item, change["value"])
            elif path.startswith("/fields/") and change["op"] in ("add", "remove"):
                name = path.removeprefix("/fields/")
                if not name.startswith(("System.", "Microsoft.VSTS.", "Custom.")):
                    raise Refused(400, f"TF51535: Cannot find field {name}.")
                changed[name] = {"oldValue": item["fields"].pop(name, None), "newValue": change.get("value")}
                if change["op"] == "add":
                    item["fields"][name] = change["value"]
            else:
                raise Refused(400, f"the operation {change['op']} at {path}")
        item["rev"] += 1
        updates = self.state["updates"].setdefault(str(item["id"]), [])
        updates.append({"id": item["rev"], "rev": item["rev"], "revisedBy": PERSON, "fields": changed})
        return item

    def link(self, item, value):
        target = self.state["items"].get(value["url"].rsplit("/", 1)[1])
        if not target or value["url"] != self.url(target["id"]):
            raise Refused(400, f"TF201035: there is no work item {value['url']}")
        opposite = OPPOSITES.get(value["rel"])
        if not opposite:
            raise Refused(400, f"VS403654: Invalid link type {value['rel']}")
        for one, rel, other in ((item, value["rel"], target), (target, opposite, item)):
            one.setdefault("relations", []).append({"rel": rel, "url": self.url(other["id"])})


WAITING = threading.Barrier(16)


def completions(headers, body):
    """A status and a body of `chat/completions`."""

    def refused(status, message):
        return status, json.dumps({"error": {"message": message, "type": "x"}}).encode()

    if headers.get("Authorization") != f"Bearer {KEY}":
        return refused(401, "Authentication Fails")
    asked = json.loads(body)
    if asked["stream"] or headers.get("Content-Type") != "application/json":
        return refused(400, "this is no request of ours")
    prompt = asked["messages"][0]["content"]
    if prompt.startswith("fail"):
        return refused(500, "it has failed")
    if prompt.startswith("meet"):
        # Only those come through that are asked side by side.
        try:
            WAITING.wait(timeout=90)
        except threading.BrokenBarrierError:
            return refused(500, "nobody else came")
    text = f"{asked['model']} {asked['max_tokens']}: {prompt}"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return 200, json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()
