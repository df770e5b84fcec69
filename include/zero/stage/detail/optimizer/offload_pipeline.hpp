#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/timed_backend.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/chunk_places.hpp"
#include "../../../layout/chunk_plan.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../tier/tier_error.hpp"
#include "../../stage_options.hpp"
#include "../memory/offloaded_states.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the states of a rank that are offloaded: the tier, the staging memory, and the
/// memory of the chunks that stay. Moves chunks through staging memory in the order of the update,
/// and parameters in the order of their gathers. The tier's options say how large a chunk is and
/// how many of them the staging memory holds (`FileTierOptions::chunk_bytes` and `depth`).
///
/// A chunk that is offloaded has a number n, and staging slot n mod depth for ever, so the tables
/// of slices point there (`ChunkPlaces`). A step reads chunk n, updates it, and writes it; reads of
/// the next chunks and writes of the ones before are under way meanwhile. Fences `chunk_read`,
/// `chunk_updated` and `chunk_written` order them. A gather reads parameters to slots of its own,
/// and copies them to the lease; `chunk_copied` orders the next read to the slot.
template <class Config>
class OffloadedStates<Config, true> {
public:
    using Failure = TierError; ///< of a request that failed

    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Tier = typename Config::Offload::Tier;

    /// @param layout must outlive this object, as `memory` must
    /// @param communicator releases the other ranks if the tier cannot be made
    /// @throws InvalidArgument for an option, before anything is allocated; TierError
    OffloadedStates(FlatLayout const& layout, typename Config::Communicator& communicator,
                    StageRow const& row, StageOptions<Config> const& options,
                    MemoryResource& memory);

    OffloadedStates(OffloadedStates const&) = delete;
    OffloadedStates& operator=(OffloadedStates const&) = delete;
    ~OffloadedStates() = default;

    [[nodiscard]] ChunkPlan const& plan() const noexcept { return _places.plan(); }

    /// @brief Names the layout anew, after it was moved.
    void use(FlatLayout const& layout) noexcept { _layout = &layout; }

    /// @brief Returns the address of the slice that begins at element `index` of a bucket, in
    /// staging memory or where it stays.
    /// @param array number of the array among those of its kind
    [[nodiscard]] std::byte* address(std::size_t bucket, std::size_t index, BufferKind kind,
                                     std::size_t array) const {
        auto const place = _places.place(bucket, index, kind, array);
        return (place.is_staged ? _staging_begin : _resident[place.kind].data()) + place.offset;
    }

    /// @brief Begins the reads of the first chunks of an update. A no-op if they were begun.
    void begin() {
        release();
        while (_begun < smaller(_slots.size(), _places.updated_numbers())) {
            read_for_update(_begun++);
        }
    }

    /// @brief Makes commands on a queue wait for all writes, which read the decision of their step.
    void wait_for_writes(Queue queue) {
        for (Slot const& slot : _slots) {
            for (Event const& written : slot.written) {
                Backend::wait(queue, written, Fence::chunk_written);
            }
        }
    }

    /// @brief Calls `enqueue()`, which enqueues the update of a chunk. Call it for each chunk in
    /// order, after `begin`.
    /// @param is_left_out read before the write: whether the update changed nothing
    template <class Enqueue>
    void update(std::size_t chunk, Queue queue, Enqueue const& enqueue, bool const* is_left_out) {
        if (!is_offloaded(chunk)) {
            enqueue();
            return;
        }
        std::size_t const number = _places.number(chunk);
        for (Event const& read : slot_of(number).read) {
            Backend::wait(queue, read, Fence::chunk_read);
        }
        Backend::run(queue, [tier = _tier.get()] { tier->rethrow_failure(); });
        enqueue();
        write(number, queue, is_left_out);
        std::size_t const numbers = _places.updated_numbers();
        if (_begun < numbers) {
            read_for_update(_begun++);
        }
        _begun = number + 1 == numbers ? 0 : _begun;
    }

    /// @brief Returns the queue of updates that run during the next step (`DelayedUpdate`).
    [[nodiscard]] Queue update_queue() const noexcept { return Backend::handle(*_updates); }

    /// @brief Enqueues the copy of this rank's parameters of a bucket to their places in it: reads
    /// of later chunks run beside copies of earlier ones.
    /// @param bucket_begin the memory of the bucket, for commands on `queue`
    void read_parameters(std::size_t bucket, Queue queue, std::byte* bucket_begin,
                         std::size_t element_bytes) {
        release();
        for_chunks_of(bucket, [&](std::size_t chunk) {
            if (_places.has_offloaded_parameters(chunk)) {
                std::size_t const number = _places.number(chunk);
                std::size_t const request = _places.request(number, 1);
                std::size_t const index = _gathers++ % _gather_slots.size();
                GatherSlot& slot = _gather_slots[index];
                Queue const reader = _tier->reading_queue(request);
                wait_for_writes(reader);
                Backend::wait(reader, slot.copied, Fence::chunk_copied);
                std::byte* const memory = gather_memory(index);
                Event read{};
                {
                    TransferSpan<Backend> const span(reader, "read of chunk", number);
                    read = _tier->read(request, memory);
                }
                Backend::wait(queue, read, Fence::chunk_read);
                copy_parameters(chunk, memory, bucket_begin, element_bytes, queue);
                slot.copied = Backend::record(queue);
            } else {
                copy_parameters(chunk, nullptr, bucket_begin, element_bytes, queue);
            }
        });
    }

    /// @brief Calls `visit(Piece, T* memory)` for each slice of this rank in a bucket, which writes
    /// the initial values of the parameters. Waits.
    template <class T, class Visit>
    void fill_parameters(std::size_t bucket, Visit const& visit);

    /// @brief Calls `visit(Piece, void*)` with each slice of this rank's parameters in a bucket and
    /// its address between two steps (`held_address`).
    template <class Visit>
    void for_held_parameters(std::size_t bucket, Visit const& visit) const;

    /// @brief Calls `visit(chunk)` for each chunk of a parameter type that is updated while it is
    /// in memory. The host may use it, and `visit` may enqueue commands on `queue` that do. Waits.
    /// @param is_new whether all but parameters gets its first values: it is not read, and
    /// parameters are not written
    template <class Visit>
    void visit(std::size_t type, Queue queue, bool is_new, Visit const& visit);

    /// @brief Refuses a call in a visitor, which uses the slot of its chunk, and whose writes are
    /// not in the tier yet. @throws OutOfOrder
    void require_no_visit() const;

    /// @brief Returns the address that stands for memory of a chunk between two steps: its own if
    /// it stays, otherwise one that only `memory_at` understands.
    /// @param data its address in staging memory, or where it stays
    [[nodiscard]] void* held_address(std::size_t chunk, void* data) const;

    /// @brief Returns the memory that an address of `held_address` stands for, up to the end of its
    /// slice. Other addresses stand for themselves. Between two steps; waits. The memory may be
    /// used until the next call of any function that moves chunks.
    /// @param is_written whether the caller writes to it
    [[nodiscard]] std::byte* memory_at(void const* address, bool is_written);

    /// @brief Copies bytes of one slice, from or to an address of `held_address`. Waits.
    [[gnu::cold]] void copy(void* to, void const* from, std::size_t bytes) {
        std::byte const* const source = memory_at(from, false);
        std::copy_n(source, bytes, memory_at(to, true));
    }

    /// @brief Waits for all requests. Reads that were begun are forgotten.
    void settle() const noexcept {
        for (Slot const& slot : _slots) {
            wait_for(slot);
        }
        for (GatherSlot const& slot : _gather_slots) {
            slot.copied.synchronise();
        }
        _begun = 0;
    }

    /// @brief Lets requests fail that have not begun, so that `settle` is short.
    void cancel() const noexcept { _tier->cancel(); }

    /// @brief Whether some states of a kind lie in the tier.
    [[nodiscard]] bool has(BufferKind kind) const noexcept { return _places.is_in_file(kind); }

    /// @brief Throws the first failure of a request, if there is one.
    void rethrow_failure() const { _tier->rethrow_failure(); }

    /// @brief Sets the rows of a memory plan that are not those of memory alone.
    [[gnu::cold]] void add_to(MemoryPlan& plan) const {
        _places.add_to(plan);
        plan[BufferKind::commands].content_bytes += _tier->command_bytes();
        if constexpr (delays_update<Config>) {
            plan[BufferKind::commands].content_bytes += _updates->size_bytes();
        }
    }

private:
    /// `ChunkPlaces::parts`
    static constexpr std::size_t parts = Config::Offload::offloads(BufferKind::parameters) ? 2 : 1;

    /// Staging memory of one chunk at a time.
    struct Slot {
        std::array<Event, parts> read{};    ///< the last reads to it
        std::array<Event, parts> written{}; ///< the last writes from it, or other uses
        /// Between two steps: the number of the chunk that it holds, from 1, and whether that was
        /// changed.
        std::size_t held = 0;
        bool is_written = false;
    };

    /// Staging memory of the parameters of one chunk at a time.
    struct GatherSlot {
        Event copied{}; ///< the last use of it
    };

    template <class Visitor>
    static void for_types(Visitor const& visit) {
        [&]<std::size_t... Type>(std::index_sequence<Type...>) {
            (visit.template operator()<typename Config::template TypesAt<Type>>(), ...);
        }(std::make_index_sequence<Config::types>());
    }

    /// The arrays of a parameter type that are offloaded.
    template <class Types>
    [[nodiscard]] static ChunkArrays arrays_of();

    void allocate(MemoryResource& memory, bool poison);

    [[nodiscard]] bool is_offloaded(std::size_t chunk) const noexcept {
        return plan().chunks()[chunk].is_offloaded;
    }

    template <class Visit>
    void for_chunks_of(std::size_t bucket, Visit const& visit) const {
        for (std::size_t chunk = plan().first_chunk(bucket); chunk < plan().end_chunk(bucket);
             ++chunk) {
            visit(chunk);
        }
    }

    /// Calls `visit(Piece, std::byte*)` for the parameters of each slice of a chunk.
    /// @param memory of the part that holds them; not used if the chunk stays
    template <class Visit>
    void for_parameters(std::size_t chunk, std::byte* memory, std::size_t element_bytes,
                        Visit const& visit) const {
        auto const& own = plan().chunks()[chunk];
        auto const slices = plan().slices(own);
        if (!_places.has_offloaded_parameters(chunk) && !slices.empty()) {
            memory = address(own.bucket, slices.front().bucket_begin, BufferKind::parameters, 0);
        }
        for (Piece const& piece : slices) {
            visit(piece, memory);
            memory += static_cast<std::size_t>(blocks_of(piece.elements) * block_elements
                                               * element_bytes);
        }
    }

    /// One command for all slices: a queue has room for commands of chunks, not of tensors. It
    /// fails where a read failed.
    void copy_parameters(std::size_t chunk, std::byte* memory, std::byte* bucket_begin,
                         std::size_t element_bytes, Queue queue) const {
        Backend::run(queue, [this, chunk, memory, bucket_begin, element_bytes] {
            _tier->rethrow_failure();
            for_parameters(chunk, memory, element_bytes,
                           [&](Piece const& piece, std::byte const* values) {
                               std::copy_n(values, piece.elements * element_bytes,
                                           bucket_begin + piece.bucket_begin * element_bytes);
                           });
        });
    }

    [[nodiscard]] Slot& slot_of(std::size_t number) noexcept {
        return _slots[number % _slots.size()];
    }

    [[nodiscard]] std::byte* memory_of(std::size_t number, std::size_t part) const noexcept {
        return _staging_begin + _places.slot_begin(number) + _places.part_begin(number, part);
    }

    [[nodiscard]] std::byte* gather_memory(std::size_t slot) const noexcept {
        return _staging_begin + _places.gather_slot_begin(slot);
    }

    static void wait_for(Slot const& slot) noexcept {
        for (std::size_t part = 0; part < parts; ++part) {
            slot.read[part].synchronise();
            slot.written[part].synchronise();
        }
    }

    struct VisitScope {
        explicit VisitScope(bool& is_visited) noexcept : flag(is_visited) { flag = true; }
        VisitScope(VisitScope const&) = delete;
        VisitScope& operator=(VisitScope const&) = delete;
        ~VisitScope() { flag = false; }
        bool& flag;
    };

    /// Writes back what was changed between two steps.
    void release() {
        if (_is_held) {
            for (Slot& slot : _slots) {
                write_held(slot);
                slot.held = 0;
            }
            _is_held = false;
        }
    }

    void write_held(Slot& slot);

    /// Calls `visit(part, request)` for the parts of a chunk. That of a frozen bucket has no part
    /// that only the update uses.
    template <class Visit>
    void for_parts(std::size_t number, Visit const& visit) const {
        for (std::size_t part = 0; part < parts; ++part) {
            if (_places.part_bytes(number, part) != 0) {
                visit(part, _places.request(number, part));
            }
        }
    }

    /// @param begin, end the parts that are needed
    void begin_read(std::size_t number, std::size_t begin = 0, std::size_t end = parts) {
        Slot& slot = slot_of(number);
        for_parts(number, [&](std::size_t part, std::size_t request) {
            if (part < begin || part >= end) {
                return;
            }
            Queue const queue = _tier->reading_queue(request);
            for (Event const& written : slot.written) {
                Backend::wait(queue, written, Fence::chunk_written);
            }
            TransferSpan<Backend> const span(queue, "read of chunk", number);
            slot.read[part] = _tier->read(request, memory_of(number, part));
        });
    }

    /// An update that rounds master weights to the parameters does not read these. It waits for
    /// the read of the other part, which waits until the slot is free.
    void read_for_update(std::size_t number) {
        bool const is_left_out = _overwrites_parameters && _places.part_bytes(number, 0) != 0;
        begin_read(number, 0, is_left_out ? 1 : parts);
    }

    /// @param end the parts before it were changed; the others were read
    void write(std::size_t number, Queue queue, bool const* is_left_out, std::size_t end = parts) {
        Event const updated = Backend::record(queue);
        for_parts(number, [&](std::size_t part, std::size_t request) {
            if (part >= end) { // the next read to the slot waits for this use of it
                slot_of(number).written[part] = updated;
                return;
            }
            Queue const own = _tier->writing_queue(request);
            Backend::wait(own, updated, Fence::chunk_updated);
            TransferSpan<Backend> const span(own, "write of chunk", number);
            slot_of(number).written[part] =
                _tier->write(request, memory_of(number, part), is_left_out);
        });
    }

    /// "master weights and optimizer state of 'w', elements 0 to 99, and 3 more slices"
    [[nodiscard]] std::string name_of_request(std::size_t request) const;

    FlatLayout const* _layout;
    std::size_t _rank;
    bool _overwrites_parameters; ///< an update writes each of them, whatever its value was
    ChunkPlaces _places;
    std::vector<Slot> _slots;
    std::vector<GatherSlot> _gather_slots;
    Buffer<std::byte> _staging;
    std::array<Buffer<std::byte>, ChunkArrays::kinds.size()> _resident; ///< what stays, by kind
    std::byte* _staging_begin = nullptr;
    mutable std::size_t _begun = 0; ///< chunks of this update whose read was begun
    std::size_t _gathers = 0;       ///< chunks that were gathered or filled so far
    bool _is_visited = false;       ///< whether `visit` runs
    bool _is_held = false;          ///< whether staging memory holds chunks between two steps
    std::unique_ptr<Tier> _tier;    ///< destroyed first: its requests use the memory
    std::unique_ptr<typename Backend::OwnedQueue> _updates; ///< null without `DelayedUpdate`
};

} // namespace ZERO_NAMESPACE::detail

#include "offload_between_steps.tpp"
#include "offload_set_up.tpp"
