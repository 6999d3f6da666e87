"""Tools that read real PDF files, and a writer of such files: text on pages, nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agent_infra.actions import CallContext, tool


def write_pdf(path: Path, pages: list[list[str]]) -> Path:
    """A PDF file (ISO 32000-1) with these lines of Latin text on its pages."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids: list[str] = []
    for lines in pages:
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 11 Tf 14 TL 60 780 Td {shown} ET"
        number = len(objects) + 1
        kids.append(f"{number} 0 R")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {number + 1} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    end += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    path.write_bytes(body + end.encode())
    return path


@tool(effects="none", isolation="process")
def pdf_analyzer(file_id: str, path: str, metrics: list[str]) -> dict[str, Any]:
    """Find figures in a report.

    Args:
        file_id: the document's node
        path: where its file is
        metrics: their names, as revenue or net_income
    """
    from pypdf import PdfReader

    text = "\n".join(page.extract_text() for page in PdfReader(path).pages)
    found: dict[str, float | None] = {}
    for name in metrics:
        match = re.search(rf"{name.replace('_', ' ')}\s+([\d,.]+)", text, re.IGNORECASE)
        found[name] = float(match[1].replace(",", "")) if match else None
    return {"file_id": file_id, "metrics": found}


@tool(effects="none", isolation="process")
def pdf_parser(
    file_id: str, path: str, page_range: list[int], output_format: str, context: CallContext
) -> dict[str, Any]:
    """Read pages as text, and say how far it is."""
    from pypdf import PdfReader

    reader = PdfReader(path)
    first, last = page_range
    letters = 0
    for number in range(first, last + 1):
        letters += len(reader.pages[number - 1].extract_text())
        context.progress(number / last)
    return {"file_id": file_id, "format": output_format, "pages": last - first + 1, "letters": letters}


@tool(effects="none", isolation="process")
def pdf_hoarder(path: str) -> int:
    """Keep every page as an image would be kept: some MiB each."""
    from pypdf import PdfReader

    kept = [page.extract_text().encode().ljust(4 * 2**20) for page in PdfReader(path).pages]
    return len(kept)
