"""The check of an op's ties in C++: an inconsistent call is refused before anything is read or written."""

from __future__ import annotations

from harness.spec.interface import Interface


def write_ties(interface: Interface) -> str:
    """Return check_ties(), which settles a call as the op's ties say and refuses it where that differs; "" for an op without ties."""
    op = interface.op
    if not op.ties:
        return ""
    attributes = {a.name: a for a in op.attributes}
    given = {
        name: f"params.{interface.presences[name].name} != nullptr" if name in interface.presences else f"params.{name}"
        for name in attributes
    }
    given |= {size: f"params.{size.lower()}" for size in interface.sizes}
    lines = [f"    std::int64_t own_{name} = {field};" for name, field in given.items()]
    for tie in op.ties:
        wanted = {name: str(interface.find_code(attributes[name], value)) for name, value in tie.then.items()}
        wanted |= {first: f"own_{second}" for first, second in tie.equal}
        cases = [" || ".join(f"own_{c.attribute} == {interface.find_code(attributes[c.attribute], v)}" for v in c.values) for c in tie.when]
        body = " ".join(f"own_{name} = {value};" for name, value in wanted.items())
        lines.append(f"    if ({' && '.join(f'({case})' for case in cases) or 'true'}) {{ {body} }}")
    lines += [f'    AICF_RETURN_IF_NOT_OK(check_tie("{name}", {field}, own_{name}));' for name, field in given.items()]
    text = "\n".join(lines)
    return f"""
inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {{
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}}

inline AicfStatus check_ties(const Params& params) {{
{text}
    return make_ok();
}}
"""
