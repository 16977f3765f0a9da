"""The text of PDFs and notebooks, and of files that are neither."""

import json

import pytest

from localspec.media import documents

_OBJECTS = (
    b"<< /Type /Catalog /Pages 2 0 R >>",
    b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>"
    ),
    b"<< /Length 51 >> stream\nBT /F1 24 Tf 72 720 Td (Owls hunt at night) Tj ET   \nendstream",
    b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
)


def _pdf() -> bytes:
    whole, places = b"%PDF-1.4\n", []
    for number, inside in enumerate(_OBJECTS, 1):
        places.append(b"%010d 00000 n \n" % len(whole))
        whole += b"%d 0 obj %s endobj\n" % (number, inside)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(places)
    end = b"trailer << /Root 1 0 R /Size 6 >>\nstartxref\n%d\n%%%%EOF\n" % len(whole)
    return whole + table + end


PDF = _pdf()


def test_a_pdf_is_read_page_by_page(tmp_path):
    file = tmp_path / "owls.PDF"
    file.write_bytes(PDF)
    assert documents.text_of(file) == "[page 1]\nOwls hunt at night"


@pytest.mark.parametrize("content", [b"", b"%PDF-1.4\nnothing", b"\0" * 5000, PDF[:200]])
def test_a_damaged_pdf_is_an_error_and_the_next_one_is_read(tmp_path, content):
    (tmp_path / "bad.pdf").write_bytes(content)
    with pytest.raises(documents.UnreadableError):
        documents.text_of(tmp_path / "bad.pdf")
    (tmp_path / "good.pdf").write_bytes(PDF)
    assert "Owls" in documents.text_of(tmp_path / "good.pdf")


def test_a_notebook_is_its_cells_with_results_that_are_text(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Owls\n", "They hunt."]},
        {
            "cell_type": "code",
            "source": "1 + 2",
            "outputs": [{"data": {"text/plain": ["3"], "image/png": "iVBOR"}}],
        },
    ]
    file = tmp_path / "owls.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    assert documents.text_of(file) == "# Owls\nThey hunt.\n\n```\n1 + 2\n```\n\n3"


@pytest.mark.parametrize("content", ["", "[]", '{"cells": 3}', '{"cells": [3]}', "[" * 9999])
def test_what_only_has_the_name_of_a_notebook_is_refused(tmp_path, content):
    file = tmp_path / "odd.ipynb"
    file.write_text(content)
    with pytest.raises(documents.UnreadableError, match="it is not a notebook"):
        documents.text_of(file)


@pytest.mark.slow
def test_a_notebook_that_fills_the_memory_is_refused(tmp_path):
    """64 MB of JSON are gigabytes of objects; they never are in this process."""
    file = tmp_path / "full.ipynb"
    file.write_text('{"cells": [' + "[]," * (60 * 10**6 // 3) + "[]]}")
    with pytest.raises(documents.UnreadableError, match="takes too much to be read"):
        documents.text_of(file)


def test_the_text_of_a_notebook_is_cut(tmp_path):
    file = tmp_path / "long.ipynb"
    file.write_text(json.dumps({"cells": [{"source": "owls " * 10**6}]}))
    text = documents.text_of(file)
    assert len(text) < 4_100_000
    assert text.endswith("… (cut here)")


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(documents.UnreadableError, match="is not text"):
        documents.text_of(tmp_path / "a.bin")
