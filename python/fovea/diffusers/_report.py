"""What the attention modules of a model ran, as rows and as a table."""

from __future__ import annotations

import re
from typing import Any


class Report(list[dict[str, Any]]):
    """Rows {"module", "class", "role", "category", "backend", "provider", "path", "instance", "problem", "calls", "by",
    "receipt", "note"}. str() is a table in which modules that ran alike share a line.

    by: "module" for calls seen one by one; "role" for modules whose calls are inside compiled code: what was planned
    for their role and configuration in this process, and calls is None; None for a module that has not run.
    """

    def __str__(self) -> str:
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self:
            pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", row["module"])
            named = ("role", "backend", "provider", "path", "instance", "problem", "by", "note")
            groups.setdefault((pattern, *(row[key] for key in named)), []).append(row)
        lines = [("modules", "role", "backend", "path", "calls", "problem")]
        for (pattern, role, backend, provider, path, instance, problem, by, note), rows in groups.items():
            name = rows[0]["module"] if len(rows) == 1 else f"{pattern} ({len(rows)})"
            if backend is None:
                lines.append((name, role or "-", "-", "-", "-", note or "not run yet"))
                continue
            calls = "compiled" if by == "role" else str(sum(row["calls"] for row in rows))
            fallback = rows[0]["receipt"].get("fallback")
            if fallback:
                problem = f"{problem} (fallback from {fallback['from']})"
            lines.append((name, role, f"{backend} by {provider}", f"{path} {instance}", calls, problem))
        widths = [max(len(line[column]) for line in lines) for column in range(5)]
        return "\n".join(
            "  ".join([*(text.ljust(width) for text, width in zip(line, widths)), line[5]]) for line in lines
        )

    __repr__ = __str__


def row(
    module: str,
    kind: str,
    role: str | None,
    category: str | None,
    problem: str | None = None,
    receipt: dict[str, Any] | None = None,
    calls: int | None = None,
    by: str | None = None,
    note: str | None = None,
) -> dict[str, Any]:
    """One row; receipt is None for what has not run."""
    shown = receipt or {}
    return {
        "module": module,
        "class": kind,
        "role": role,
        "category": category,
        "backend": shown.get("backend"),
        "provider": shown.get("provider"),
        "path": shown.get("path"),
        "instance": shown.get("instance"),
        "problem": problem,
        "calls": calls,
        "by": by,
        "receipt": receipt,
        "note": note,
    }
