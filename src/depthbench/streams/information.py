"""What each stream says of the token, the phrase, the sentence and the document."""

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from depthbench.probes.lab import Lab
from depthbench.probes.probe import Found, StreamsProbe
from depthbench.probes.result import Curve, Finding, Matrix, Number, row, table, value
from depthbench.streams.labels import MEANING, Kind
from depthbench.streams.linear import Read, read_classes
from depthbench.streams.sample import Sample, SampleConfig

UNIT = "nats"


@final
class Information(StreamsProbe):
    """What is sampled is an option."""

    name: ClassVar[str] = "information"
    title: ClassVar[str] = "What can be read off each stream"
    definition: ClassVar[str] = (
        "entropy of a label's classes less the cross entropy of multinomial logistic regression on "
        "the stream's standardised activations, on documents that it was not fitted on; control: "
        "the same, fitted on shuffled labels. Labels: "
        + "; ".join(f"{kind}: {words}" for kind, words in MEANING.items())
    )
    blind: ClassVar[str] = (
        "Only what one linear map can read counts, and what is read need not be used. Phrases and "
        "sentences go by the text of single tokens. With few documents a classifier learns them."
    )
    reading: ClassVar[str] = (
        "Compare a stream with the control, and streams with each other at one depth. A stream "
        "that says more of a label than all others is specialised in it."
    )
    source: ClassVar[str] = "arXiv 1610.01644; arXiv 2002.10689; arXiv 1909.03368"
    sample: SampleConfig = SampleConfig()
    """What is looked at."""

    def look(self, lab: Lab) -> Found:
        sample = Sample(lab, self.sample)
        labels, streams = sample.labels, lab.subject.facts.streams
        kinds = list(labels.classes)
        reads: dict[Kind, list[list[Read]]] = {kind: [] for kind in kinds}
        for number, depth in enumerate(sample.depths):
            lab.progress("information", number, len(sample.depths))
            z = sample.at(depth)
            for kind in kinds:
                asked = sample.question(kind, self.seed)
                reads[kind].append([read_classes(z[one], asked) for one in range(streams)])
        lab.progress("information", len(sample.depths), len(sample.depths))
        findings = [one for kind in kinds for one in self._findings(lab, kind, sample, reads[kind])]
        return Found(findings, [sample.words, *self._words(lab, sample, reads)])

    def _findings(
        self, lab: Lab, kind: Kind, sample: Sample, reads: Sequence[Sequence[Read]]
    ) -> list[Finding]:
        """By stream and depth, and each stream at the last depth with its interval."""
        names = lab.subject.stream_names
        depths = tuple(map(float, sample.depths))
        nats = np.array([[one.nats for one in line] for line in reads])
        controls = np.array([[one.control for one in line] for line in reads], np.float64)
        findings: list[Finding] = [
            Matrix(
                name=kind,
                title=f"{kind}: {MEANING[kind]}",
                unit=UNIT,
                row_axis="stream",
                column_axis="depth",
                rows=tuple(map(float, range(len(names)))),
                columns=depths,
                values=table(nats.T),
                words=f"{kind} label, stream {{row}} at depth {{column}}: information",
            ),
            Curve(
                name=f"{kind}_control",
                title=f"{kind}: the most that a stream says of shuffled labels",
                unit=UNIT,
                axis="depth",
                places=depths,
                values=row(controls.max(1)),
                words=f"{kind} label shuffled, depth {{}}: most information of a stream",
            ),
        ]
        findings += [
            Number(
                name=f"{kind}_{place}",
                title=f"{kind} label from stream {names[place]} at the last depth",
                unit=UNIT,
                value=value(one.nats),
                low=one.low,
                high=one.high,
            )
            for place, one in enumerate(reads[-1])
        ]
        return findings

    def _words(self, lab: Lab, sample: Sample, reads: dict[Kind, list[list[Read]]]) -> list[str]:
        said = []
        names = lab.subject.stream_names
        for kind, lines in reads.items():
            nats = np.array([[one.nats for one in line] for line in lines])
            depth, stream = np.unravel_index(int(nats.argmax()), nats.shape)
            best = lines[int(depth)][int(stream)]
            assert best.control is not None
            classes = len(np.unique(sample.labels.classes[kind]))
            said.append(
                f"{kind} ({classes} classes): most in stream {names[int(stream)]} at depth "
                f"{sample.depths[int(depth)]}, {best.nats:.3g} nats, accuracy {best.accuracy:.0%}; "
                f"shuffled labels give {best.control:.2g}."
            )
        said += [f"{kind}: no labels, for {why}." for kind, why in sample.labels.missing.items()]
        return said
