"""Traces as Perfetto's protobuf (perfetto.protos, trace_packet.proto and track_event.proto), by its own classes.

Imported only where the package perfetto is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TracePacket, TrackEvent

from hcq.profiling import layout

if TYPE_CHECKING:
    from hcq.profiling.session import Profile

_SEQUENCE = 1
_COUNTER = 1 << 32  # beside the ids of processes and threads, which are their tracks' too


def encode(profile: Profile) -> bytes:
    """The whole file: a Trace message."""
    trace = Trace()
    spans, flows = profile.spans, profile.flows
    leaving: dict[int, list[int]] = {}
    arriving: dict[int, list[int]] = {}
    for number, (producer, consumer) in enumerate(flows, 1):
        leaving.setdefault(producer, []).append(number)
        arriving.setdefault(consumer, []).append(number)

    def packet(time: int) -> Any:
        made = trace.packet.add()
        made.timestamp = time
        made.trusted_packet_sequence_id = _SEQUENCE
        return made

    processes = layout.arrange(profile)
    for process in processes:
        track = packet(profile.began).track_descriptor
        track.uuid = process.pid
        track.process.pid, track.process.process_name = process.pid, process.name
        for thread in process.threads:
            track = packet(profile.began).track_descriptor
            track.uuid, track.parent_uuid = thread.tid, process.pid
            track.thread.pid, track.thread.tid, track.thread.thread_name = process.pid, thread.tid, thread.name
        if process.counter:
            track = packet(profile.began).track_descriptor
            track.uuid, track.parent_uuid, track.name = _COUNTER + process.pid, process.pid, "memory (live bytes)"
            track.counter.unit = CounterDescriptor.UNIT_SIZE_BYTES
    trace.packet[0].sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED

    for process in processes:
        for thread in process.threads:
            open_ends: list[int] = []
            for index in thread.spans:
                span = spans[index]
                while open_ends and open_ends[-1] <= span.start:
                    _end(packet(open_ends.pop()), thread.tid)
                event = packet(span.start).track_event
                event.type, event.track_uuid = TrackEvent.TYPE_SLICE_BEGIN, thread.tid
                event.name = span.name
                event.categories.append(span.kind)
                event.flow_ids.extend(leaving.get(index, ()))
                event.terminating_flow_ids.extend(arriving.get(index, ()))
                for name, value in layout.facts(span).items():
                    _annotate(event, name, value)
                open_ends.append(span.end)
            while open_ends:
                _end(packet(open_ends.pop()), thread.tid)
        for time, nbytes in process.counter:
            event = packet(time).track_event
            event.type, event.track_uuid = TrackEvent.TYPE_COUNTER, _COUNTER + process.pid
            event.counter_value = nbytes
    event = packet(profile.began).track_event
    event.type, event.track_uuid, event.name = TrackEvent.TYPE_INSTANT, layout.HOST, "profile begins"
    for name, text in layout.remarks(profile).items():
        _annotate(event, name, text)
    return bytes(trace.SerializeToString())


def _end(packet: Any, track: int) -> None:
    packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track


def _annotate(event: Any, name: str, value: str | int) -> None:
    note = event.debug_annotations.add()
    note.name = name
    if isinstance(value, int):
        note.int_value = value
    else:
        note.string_value = value
