#pragma once

// A kernel of the fake NCCL (fake_nccl.hpp): the calls of all ranks, how they are compared, and
// what they compute.

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/cuda/nccl_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace zero::test::fake_nccl {

using Type = cuda::NcclType;
using Reduction = cuda::NcclReduction;

enum class Kind { reduce, broadcast, all_reduce, reduce_scatter, all_gather, send, receive };

struct Call {
    Kind kind;
    void const* send;
    void* receive;
    std::size_t count;
    Type type;
    Reduction reduction;
    int root; ///< the peer of a send and a receive

    [[nodiscard]] bool is_between_two() const {
        return kind == Kind::send || kind == Kind::receive;
    }
    [[nodiscard]] bool goes_with(Call const& other) const {
        return kind == other.kind && count == other.count && type == other.type
               && reduction == other.reduction && root == other.root;
    }
};

/// One kernel of all ranks.
struct Meeting {
    std::vector<std::vector<Call>> calls; ///< calls by rank
    int arrived = 0;
    int computed = 0;
};

/// The sends or receives of a rank whose peer is `peer`, in order.
inline std::vector<Call const*> between(Meeting const& meeting, Kind kind, int rank, int peer) {
    std::vector<Call const*> found;
    for (Call const& call : meeting.calls[static_cast<std::size_t>(rank)]) {
        if (call.kind == kind && call.root == peer) {
            found.push_back(&call);
        }
    }
    return found;
}

/// The calls of all ranks are equal, except that each send has its receive.
inline bool goes_together(Meeting const& meeting) {
    auto const of_all = [](std::vector<Call> calls) {
        std::erase_if(calls, [](Call const& call) { return call.is_between_two(); });
        return calls;
    };
    auto const first = of_all(meeting.calls[0]);
    for (auto const& calls : meeting.calls) {
        auto const other = of_all(calls);
        if (!std::equal(other.begin(), other.end(), first.begin(), first.end(),
                        [](Call const& a, Call const& b) { return a.goes_with(b); })) {
            return false;
        }
    }
    int const world = static_cast<int>(meeting.calls.size());
    for (int from = 0; from < world; ++from) {
        for (int to = 0; to < world; ++to) {
            auto const sent = between(meeting, Kind::send, from, to);
            auto const received = between(meeting, Kind::receive, to, from);
            if (!std::equal(sent.begin(), sent.end(), received.begin(), received.end(),
                            [](Call const* a, Call const* b) {
                                return a->count == b->count && a->type == b->type;
                            })) {
                return false;
            }
        }
    }
    return true;
}

struct Window {
    std::byte const* begin;
    std::size_t bytes;
};

/// The windows of each rank.
using Windows = std::map<int, std::vector<Window>>;

/// The offset in a window of the rank, or -1.
inline std::ptrdiff_t offset_in_window(Windows const& windows, std::size_t rank,
                                       void const* memory) {
    auto const found = windows.find(static_cast<int>(rank));
    if (found != windows.end()) {
        for (Window const& window : found->second) {
            auto const offset = static_cast<std::byte const*>(memory) - window.begin;
            if (memory != nullptr && offset >= 0
                && offset < static_cast<std::ptrdiff_t>(window.bytes)) {
                return offset;
            }
        }
    }
    return -1;
}

struct OffsetCounts {
    std::size_t in_windows = 0; ///< calls with both buffers in a window
    std::size_t misplaced = 0;
};

/// Checks what NCCL's symmetric kernels need: each buffer is in a window of all ranks or of none,
/// and a buffer that peers read (reductions) or write (gathers) has one offset. One rank checks for
/// all.
inline OffsetCounts check_offsets(Windows const& windows, Meeting const& meeting) {
    OffsetCounts counts;
    for (std::size_t call = 0; call < meeting.calls[0].size(); ++call) {
        auto const kind = meeting.calls[0][call].kind;
        if (kind != Kind::all_gather && kind != Kind::reduce_scatter && kind != Kind::all_reduce) {
            continue; // has no such kernel
        }
        std::ptrdiff_t const first_sent = offset_in_window(windows, 0, meeting.calls[0][call].send);
        std::ptrdiff_t const first_received =
            offset_in_window(windows, 0, meeting.calls[0][call].receive);
        counts.in_windows += first_sent >= 0 && first_received >= 0 ? 1 : 0;
        for (std::size_t rank = 1; rank < meeting.calls.size(); ++rank) {
            Call const& other = meeting.calls[rank][call];
            auto const sent = offset_in_window(windows, rank, other.send);
            auto const received = offset_in_window(windows, rank, other.receive);
            bool const differs = (sent < 0) != (first_sent < 0)
                                 || (received < 0) != (first_received < 0)
                                 || (kind != Kind::all_gather && sent != first_sent)
                                 || (kind != Kind::reduce_scatter && received != first_received);
            counts.misplaced += differs ? 1 : 0;
        }
    }
    return counts;
}

inline std::size_t bytes_of(Type type) {
    switch (type) {
    case Type::float32: return 4;
    case Type::int64: return 8;
    case Type::uint8: return 1;
    default: return 2;
    }
}

inline std::vector<std::byte> bytes_at(void const* memory, std::size_t begin, std::size_t bytes) {
    auto const* const first = static_cast<std::byte const*>(memory) + begin;
    return {first, first + bytes};
}

template <class T>
T element(std::vector<std::byte> const& bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
std::vector<std::byte> summed(std::vector<std::vector<std::byte>> const& inputs, std::size_t count,
                              bool adds_backwards) {
    std::vector<std::byte> out(count * sizeof(T));
    std::size_t const ranks = inputs.size();
    for (std::size_t i = 0; i < count; ++i) {
        float sum = to_float(element<T>(inputs[adds_backwards ? ranks - 1 : 0], i));
        for (std::size_t rank = 1; rank < ranks; ++rank) {
            if (adds_backwards) {
                sum = to_float(
                    from_float<T>(sum + to_float(element<T>(inputs[ranks - 1 - rank], i))));
            } else {
                sum += to_float(element<T>(inputs[rank], i));
            }
        }
        T const rounded = from_float<T>(sum);
        std::memcpy(out.data() + i * sizeof(T), &rounded, sizeof(T));
    }
    return out;
}

inline std::vector<std::byte> reduced_integers(std::vector<std::vector<std::byte>> const& inputs,
                                               Call const& call) {
    std::vector<std::byte> out(call.count * sizeof(std::int64_t));
    for (std::size_t i = 0; i < call.count; ++i) {
        auto value = element<std::int64_t>(inputs[0], i);
        for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
            auto const other = element<std::int64_t>(inputs[rank], i);
            value = call.reduction == Reduction::sum ? value + other : std::min(value, other);
        }
        std::memcpy(out.data() + i * sizeof(value), &value, sizeof(value));
    }
    return out;
}

inline std::vector<std::byte> reduced(std::vector<std::vector<std::byte>> const& inputs,
                                      Call const& call, bool adds_backwards) {
    switch (call.type) {
    case Type::float32: return summed<float>(inputs, call.count, adds_backwards);
    case Type::bfloat16: return summed<bfloat16>(inputs, call.count, adds_backwards);
    case Type::float16: return summed<float16>(inputs, call.count, adds_backwards);
    default: return reduced_integers(inputs, call);
    }
}

struct Write {
    void* out;
    std::vector<std::byte> bytes;
};

/// Adds to `writes` what call `index` of a rank writes.
inline void compute(Meeting const& meeting, std::size_t index, int rank, int world,
                    bool adds_backwards, std::vector<Write>& writes) {
    auto const at = [&](int peer) -> Call const& {
        return meeting.calls[static_cast<std::size_t>(peer)][index];
    };
    Call const& own = at(rank);
    std::size_t const bytes = own.count * bytes_of(own.type);
    switch (own.kind) {
    case Kind::send: return;
    case Kind::receive: {
        auto const received = between(meeting, Kind::receive, rank, own.root);
        auto const number = std::find(received.begin(), received.end(), &own);
        auto const sent = between(meeting, Kind::send, own.root, rank);
        Call const& from = *sent[static_cast<std::size_t>(number - received.begin())];
        writes.push_back({own.receive, bytes_at(from.send, 0, bytes)});
        return;
    }
    case Kind::broadcast:
        writes.push_back({own.receive, bytes_at(at(own.root).send, 0, bytes)});
        return;
    case Kind::all_gather:
        for (int peer = 0; peer < world; ++peer) {
            writes.push_back(
                {static_cast<std::byte*>(own.receive) + static_cast<std::size_t>(peer) * bytes,
                 bytes_at(at(peer).send, 0, bytes)});
        }
        return;
    case Kind::reduce:
        if (rank != own.root) {
            return;
        }
        break;
    default: break;
    }
    std::size_t const begin =
        own.kind == Kind::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
    std::vector<std::vector<std::byte>> inputs;
    for (int peer = 0; peer < world; ++peer) {
        inputs.push_back(bytes_at(at(peer).send, begin, bytes));
    }
    writes.push_back({own.receive, reduced(inputs, own, adds_backwards)});
}

} // namespace zero::test::fake_nccl
