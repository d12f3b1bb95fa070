#!/usr/bin/env python3
"""Makes the spreadsheets and PDFs of this directory, and cases.json: what `read_excel` and `read_pdf` are to read in them.

The expected texts are made here from the data that the files are made of, not by reading them. Needs openpyxl, xlwt and
reportlab (PyPI) and LibreOffice (Debian: libreoffice-calc-nogui). Run it only to make other files: it gives the same content
each time, but not the same bytes.
"""

import datetime as dt
import json
import pathlib
import subprocess
import tempfile

import openpyxl
import xlwt
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.utils.datetime import CALENDAR_MAC_1904
from reportlab.lib.pagesizes import A6
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen import canvas

HERE = pathlib.Path(__file__).parent
CASES = {}


def shown(value):
    """A cell as the tool is to show it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S") if value.time() != dt.time() else value.strftime("%Y-%m-%d")
    if isinstance(value, dt.time):
        return value.strftime("%H:%M:%S")
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def text(rows, hidden_rows=(), hidden_columns=(), show_hidden=False, first=1, last=500):
    """What `content` is to be. `rows`: {row: {column: value}}, counted from 1."""
    rows = {r: {c: v for c, v in cells.items() if v is not None} for r, cells in rows.items() if first <= r <= last}
    columns = sorted({c for cells in rows.values() for c in cells if show_hidden or c not in hidden_columns})

    def mark(number, hidden):
        return "[H]" if number in hidden else ""

    lines = ["\t".join(["row"] + [get_column_letter(c) + mark(c, hidden_columns) for c in columns])]
    for r in sorted(rows):
        if rows[r] and (show_hidden or r not in hidden_rows):
            lines.append("\t".join([f"{r}{mark(r, hidden_rows)}"] + [shown(rows[r].get(c)) for c in columns]))
    return "\n".join(lines) + "\n"


def case(file, args, **expected):
    CASES.setdefault(file, []).append({"args": args, **expected})


def table(values):
    return {r: {c: v for c, v in enumerate(row, 1)} for r, row in enumerate(values, 1)}


TABLES = {
    "plain": [["name", "number"], ["a", 1], ["b", 2.5], ["c", -3], ["d", 0.1]],
    "unicode": [["Größe", "名前", "emoji \U0001f642"], ["é", "漢字", "\u05e2\u05d1\u05e8"]],
    "escapes": [["tab\there", "line\nbreak", "back\\slash"], ['quote"', "<b>&amp;</b>", "it's"]],
    "booleans": [[True, False], [1, 0]],
    "dates": [[dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 13, 45, 30)], [dt.datetime(1999, 12, 31), dt.time(6, 30)]],
    "numbers": [[123456.0, 1.5, 0.001], [-1, 0, 99999, 0.25]],
    "sparse": [[None, None, "c1"], [None], [None], ["a4", None, None, None, "e4"]],
    "long": [["x" * 3000, "end"]],
    "empty": [],
    "one": [["only"]],
    "wide": [[f"c{c}" for c in range(1, 60)]],
    "tall": [[n] for n in range(1, 502)],
}


def sheet_of(book, name, values):
    sheet = book.create_sheet(name)
    for r, row in enumerate(values, 1):
        for c, value in enumerate(row, 1):
            if value is not None:
                sheet.cell(r, c, value)
    return sheet


def tables():
    for name, values in TABLES.items():
        book = openpyxl.Workbook()
        book.remove(book.active)
        sheet_of(book, name, values)
        book.save(HERE / f"{name}.xlsx")
        case(f"{name}.xlsx", {}, content=text(table(values)))
    case("tall.xlsx", {"start_row": 500}, content=text(table(TABLES["tall"]), first=500, last=999))
    case("tall.xlsx", {"start_row": 2, "end_row": 3}, content=text(table(TABLES["tall"]), first=2, last=3))
    past = 'start_row 502 is past the end of its sheet "tall", which has 501 rows'
    case("tall.xlsx", {"start_row": 502}, error=past)


def hidden():
    """Hidden rows, columns and sheets; also columns by a span."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "data"
    rows = {r: {c: f"{get_column_letter(c)}{r}" for c in range(1, 7)} for r in range(1, 7)}
    for r, cells in rows.items():
        for c, value in cells.items():
            sheet.cell(r, c, value)
    sheet.row_dimensions[2].hidden = True
    sheet.row_dimensions[5].hidden = True
    sheet.column_dimensions["B"].hidden = True
    sheet.column_dimensions.group("D", "E", hidden=True)
    for name, state in [("secret", "hidden"), ("very", "veryHidden")]:
        other = book.create_sheet(name)
        other["A1"] = name[0]
        other.sheet_state = state
    book.save(HERE / "hidden.xlsx")
    hides = {"hidden_rows": (2, 5), "hidden_columns": (2, 4, 5)}
    known = '; its sheets are: "data", "secret", "very"'
    for file in ["hidden.xlsx", "hidden.xls", "hidden-lo.xlsx"]:
        case(file, {}, content=text(rows, **hides))
        case(file, {"show_hidden": True}, content=text(rows, **hides, show_hidden=True))
        case(file, {"sheet": "secret"}, content="row\tA\n1\ts\n")
        case(file, {"sheet": 2}, content="row\tA\n1\tv\n")
        case(file, {"sheet": "1"}, content="row\tA\n1\ts\n")
        case(file, {"sheet": "nowhere"}, error='it has no sheet "nowhere"' + known)
        case(file, {"sheet": 3}, error="it has no sheet 3" + known)
        case(file, {"action": "list_sheets"}, content="0\tdata\n1\tsecret [H]\n2\tvery [H]\n")
        case(file, {"action": "get_info", "sheet": "data"}, content="0\tdata\t6 rows\t6 columns\n")


def others():
    # A sheet whose name is a number, and names with signs.
    book = openpyxl.Workbook()
    book.active.title = "2"
    book.active["A1"] = "called two"
    for title in ["it's & <so>", "日本"]:
        book.create_sheet(title)["A1"] = title
    book.save(HERE / "names.xlsx")
    case("names.xlsx", {"sheet": "2"}, content="row\tA\n1\tcalled two\n")
    case("names.xlsx", {"sheet": 2}, content="row\tA\n1\t日本\n")
    case("names.xlsx", {"sheet": "it's & <so>"}, content="row\tA\n1\tit's & <so>\n")

    # The other epoch.
    book = openpyxl.Workbook()
    book.epoch = CALENDAR_MAC_1904
    book.active["A1"] = dt.datetime(2024, 2, 29)
    book.save(HERE / "epoch-1904.xlsx")
    case("epoch-1904.xlsx", {}, content="row\tA\n1\t2024-02-29\n")

    # Merged cells, a style, a comment, a link: the values are what is read.
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = "merged"
    sheet["A1"].font = Font(bold=True)
    sheet.merge_cells("A1:C2")
    sheet["A3"] = "linked"
    sheet["A3"].hyperlink = "https://example.com/"
    sheet["A3"].comment = Comment("a comment", "somebody")
    book.save(HERE / "merged.xlsx")
    case("merged.xlsx", {}, content="row\tA\n1\tmerged\n3\tlinked\n")

    # A chart sheet between others.
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "numbers"
    for r in range(1, 4):
        sheet.cell(r, 1, r)
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=1, min_row=1, max_row=3))
    book.create_chartsheet("picture").add_chart(chart)
    book.create_sheet("last")["B2"] = "l"
    book.save(HERE / "chart.xlsx")
    case("chart.xlsx", {}, content="row\tA\n1\t1\n2\t2\n3\t3\n")
    case("chart.xlsx", {"sheet": "picture"}, error='its sheet "picture" is a chart, which has no cells')

    # Written as a stream, which has no order of its own.
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("stream")
    for r in range(3):
        sheet.append([f"r{r}", r])
    book.save(HERE / "stream.xlsx")
    case("stream.xlsx", {}, content="row\tA\tB\n1\tr0\t0\n2\tr1\t1\n3\tr2\t2\n")

    # The last cell that there can be.
    book = openpyxl.Workbook()
    book.active["A1"] = "first"
    book.active["XFD1048576"] = "last"
    book.save(HERE / "corners.xlsx")
    case("corners.xlsx", {}, content="row\tA\n1\tfirst\n")
    case("corners.xlsx", {"start_row": 1048576}, content="row\tXFD\n1048576\tlast\n")

    # Formulas without values: LibreOffice adds them.
    book = openpyxl.Workbook()
    sheet = book.active
    for r, value in enumerate([2, 3, "=A1*A2", "=1/0", '="a"&"b"', "=A1=2"], 1):
        sheet.cell(r, 1, value)
    book.save(HERE / "formulas.xlsx")
    case("formulas.xlsx", {}, content="row\tA\n1\t2\n2\t3\n")
    for file in ["formulas.xls", "formulas-lo.xlsx"]:
        case(file, {}, content="row\tA\n1\t2\n2\t3\n3\t6\n4\t#DIV/0!\n5\tab\n6\tTRUE\n")


def convert(name, kind, to):
    with tempfile.TemporaryDirectory() as out:
        profile = f"-env:UserInstallation=file://{out}/profile"
        command = ["soffice", profile, "--headless", "--convert-to", kind, "--outdir", out, str(HERE / f"{name}.xlsx")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
        made = pathlib.Path(out) / f"{name}.{kind.split(':')[0]}"
        (HERE / to).write_bytes(made.read_bytes())


def libreoffice():
    for name in ["plain", "unicode", "escapes", "dates", "sparse", "hidden", "formulas"]:
        convert(name, "xls:MS Excel 97", f"{name}.xls")
        convert(name, "xlsx:Calc MS Excel 2007 XML", f"{name}-lo.xlsx")
        if name in TABLES:
            for file in [f"{name}.xls", f"{name}-lo.xlsx"]:
                case(file, {}, content=text(table(TABLES[name])))
    convert("plain", "pdf", "plain.pdf")
    case("plain.pdf", {}, has=["name", "number", "2.5"])


def with_xlwt():
    for name in ["plain", "booleans", "numbers", "one", "wide"]:
        book = xlwt.Workbook(encoding="utf-8")
        sheet = book.add_sheet(name)
        for r, row in enumerate(TABLES[name]):
            for c, value in enumerate(row):
                sheet.write(r, c, value)
        book.save(str(HERE / f"{name}-xlwt.xls"))
        case(f"{name}-xlwt.xls", {}, content=text(table(TABLES[name])))
    book = xlwt.Workbook()
    sheet = book.add_sheet("h")
    for r in range(3):
        for c in range(3):
            sheet.write(r, c, r * 10 + c)
    sheet.row(1).hidden = True
    sheet.col(0).hidden = True
    book.add_sheet("gone").visibility = 1
    book.save(str(HERE / "hidden-xlwt.xls"))
    rows = {r + 1: {c + 1: r * 10 + c for c in range(3)} for r in range(3)}
    case("hidden-xlwt.xls", {}, content=text(rows, hidden_rows=(2,), hidden_columns=(1,)))
    case("hidden-xlwt.xls", {"show_hidden": True}, content=text(rows, (2,), (1,), True))
    case("hidden-xlwt.xls", {"action": "list_sheets"}, content="0\th\n1\tgone [H]\n")


def pdf(file, texts, **options):
    page = canvas.Canvas(str(HERE / file), pagesize=A6, invariant=1, **options)
    for line in texts:
        page.drawString(30, 200, line)
        page.showPage()
    page.save()


def pdfs():
    pages = [f"This is page {n}." for n in range(1, 6)]
    pdf("five.pdf", pages)
    case("five.pdf", {}, has=pages)
    case("five.pdf", {"pages": "2"}, has=["This is page 2."], lacks=["page 1", "page 3"])
    case("five.pdf", {"pages": "4-5"}, has=["This is page 4.", "This is page 5."], lacks=["page 3"])
    pdf("one.pdf", ["Only one."])
    case("one.pdf", {}, has=["Only one."])
    pdf("blank.pdf", [""])
    case("blank.pdf", {}, has=[])
    pdf("locked.pdf", ["Secret."], encrypt=StandardEncryption("user", "owner"))
    case("locked.pdf", {}, error="password")


tables()
hidden()
others()
libreoffice()
with_xlwt()
pdfs()
(HERE / "cases.json").write_text(json.dumps(CASES, ensure_ascii=False, indent=1) + "\n")
