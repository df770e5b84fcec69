#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/timed_backend.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/chunk_plan.hpp"
#include "../../../layout/detail/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/placement.hpp"
#include "../../../tier/tier_error.hpp"
#include "../../stage_options.hpp"
#include "master_weight_store.hpp"
#include "offloaded_states.hpp"
#include "optimizer_state_store.hpp"
#include "optimizer_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the states of a rank that are offloaded: the tier, the staging memory, and the
/// memory of the chunks that stay. Moves chunks through staging memory in the order of the update.
///
/// A chunk that is offloaded has a number n, and staging slot n mod depth for ever, so the tables
/// of slices point there. A step reads chunk n, updates it, and writes it; reads of the next chunks
/// and writes of the ones before are under way meanwhile. Fences `chunk_read`, `chunk_updated` and
/// `chunk_written` order them.
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
    [[gnu::cold]] OffloadedStates(FlatLayout const& layout,
                                  typename Config::Communicator& communicator, StageRow const& row,
                                  StageOptions<Config> const& options, MemoryResource& memory)
        : _layout(&layout), _rank(static_cast<std::size_t>(communicator.rank())) {
        auto const& chosen = options.offload;
        std::size_t const rank = _rank;
        auto const refuse_if = [rank](bool is_wrong, char const* why) {
            if (is_wrong) throw_error<InvalidArgument>({"zero: rank ", rank, why});
        };
        refuse_if(chosen.depth == 0,
                  ": offload.depth is 0; it is the number of chunks in staging memory, at least 1 "
                  "and usually 3: one is read, one updated, one written.");
        refuse_if(options.update_tile_elements != 0,
                  ": update_tile_elements is set, but Offload updates chunk by chunk; leave it "
                  "out, and set offload.chunk_bytes.");
        for_types(
            [&]<class Types>(std::size_t /*type*/) { _arrays.push_back(arrays_of<Types>()); });
        auto const add = [&](std::size_t bucket, std::vector<Piece>& list) {
            for_updated_slices<Config>(layout, bucket, rank, row,
                                       [&](Piece const& piece) { list.push_back(piece); });
        };
        _plan = ChunkPlan(layout, _arrays, {chosen.chunk_bytes, chosen.ratio},
                          !Config::Optimizer::whole_tensor, add);
        std::vector<std::uint64_t> sizes;
        for (auto const& chunk : _plan.chunks()) {
            _places.push_back({sizes.size(), {0, 0}});
            if (chunk.is_offloaded) {
                sizes.push_back(chunk.bytes);
                _numbers.push_back(_places.size() - 1);
            }
        }
        find_blocks();
        try {
            _tier = std::make_unique<Tier>(chosen, sizes, text({"rank ", rank}), memory);
        } catch (TierError const& error) { // the disk of this rank alone may be full
            communicator.abort(first_line(error.what()));
            throw;
        }
        _tier->describe_by(
            [](void const* states, std::size_t number) {
                return static_cast<OffloadedStates const*>(states)->name_of_chunk(number);
            },
            this);
        _slots.resize(smaller(chosen.depth, sizes.size()));
        place(memory, options.poison);
    }

    OffloadedStates(OffloadedStates const&) = delete;
    OffloadedStates& operator=(OffloadedStates const&) = delete;
    ~OffloadedStates() = default;

    [[nodiscard]] ChunkPlan const& plan() const noexcept { return _plan; }

    /// @brief Names the layout anew, after it was moved.
    void use(FlatLayout const& layout) noexcept { _layout = &layout; }

    /// @brief Returns the number of the first array of a kind among those of a parameter type.
    [[nodiscard]] std::size_t first_array(std::size_t type, BufferKind kind) const noexcept {
        return kind == BufferKind::optimizer_state ? _masters[type] : 0;
    }

    /// @brief Returns the address of the slice that begins at element `index` of a bucket.
    [[nodiscard]] std::byte* address(std::size_t bucket, std::size_t index,
                                     std::size_t array) const {
        auto const slices = _plan.slices();
        auto const chunks = _plan.chunks();
        auto const* const begins = slices.data() + chunks[_plan.first_chunk(bucket)].first_slice;
        auto const& last = chunks[_plan.end_chunk(bucket) - 1];
        auto const* const found = std::lower_bound(
            begins, slices.data() + last.first_slice + last.slices, index,
            [](Piece const& piece, std::size_t at) { return piece.bucket_begin < at; });
        auto const slice = static_cast<std::size_t>(found - slices.data());
        std::size_t const chunk = _chunk_of[slice];
        auto const own = _plan.slices(chunks[chunk]);
        std::size_t const type = _layout->bucket(bucket).type;
        auto const& arrays = _arrays[type];
        bool const is_state = array >= _masters[type];
        std::size_t begin_of = _places[chunk].begin[is_state ? 1 : 0];
        for (std::size_t before = is_state ? _masters[type] : 0; before < array; ++before) {
            begin_of += static_cast<std::size_t>(ChunkPlan::array_bytes(arrays[before], own));
        }
        std::byte* const memory = chunks[chunk].is_offloaded ? _staging_begin
                                  : is_state                 ? _resident_states.data()
                                                             : _resident_masters.data();
        ChunkArray const& own_array = arrays[array];
        return memory + begin_of
               + _blocks[slice]
                     * (own_array.element_bytes * block_elements + own_array.block_bytes);
    }

    /// @brief Begins the reads of the first chunks of an update. A no-op if they were begun.
    void begin() {
        release();
        while (_begun < _slots.size()) {
            begin_read(_begun++);
        }
    }

    /// @brief Makes commands on a queue wait for all writes, which read the decision of their step.
    void wait_for_writes(Queue queue) {
        for (Slot const& slot : _slots) {
            Backend::wait(queue, slot.written, Fence::chunk_written);
        }
    }

    /// @brief Calls `enqueue()`, which enqueues the update of a chunk. Call it for each chunk in
    /// order, after `begin`.
    /// @param is_left_out read before the write: whether the update changed nothing
    template <class Enqueue>
    void update(std::size_t chunk, Queue queue, Enqueue const& enqueue, bool const* is_left_out) {
        if (!_plan.chunks()[chunk].is_offloaded) {
            enqueue();
            return;
        }
        std::size_t const number = _places[chunk].number;
        Slot& slot = slot_of(number);
        Backend::wait(queue, slot.read, Fence::chunk_read);
        // What was not read must not be used, so its failure is one of the queue.
        Backend::run(queue, [tier = _tier.get()] { tier->rethrow_failure(); });
        enqueue();
        write(number, queue, is_left_out);
        if (_begun < _numbers.size()) {
            begin_read(_begun++);
        }
        _begun = number + 1 == _numbers.size() ? 0 : _begun;
    }

    /// @brief Calls `visit(chunk)` for each chunk of a parameter type while it is in memory. The
    /// host may use it, and `visit` may enqueue commands on `queue` that do. Waits.
    /// @param is_new whether the values need not be read
    template <class Visit>
    [[gnu::cold]] void visit(std::size_t type, Queue queue, bool is_new, Visit const& visit) {
        require_no_visit();
        VisitScope const scope(_is_visited);
        release();
        settle();
        for (std::size_t chunk = 0; chunk < _plan.chunks().size(); ++chunk) {
            auto const& own = _plan.chunks()[chunk];
            if (_layout->bucket(own.bucket).type != type) {
                continue;
            }
            if (!own.is_offloaded) {
                visit(chunk);
                continue;
            }
            std::size_t const number = _places[chunk].number;
            if (is_new) {
                slot_of(number).written.synchronise();
            } else {
                begin_read(number);
                slot_of(number).read.synchronise();
            }
            _tier->rethrow_failure();
            visit(chunk);
            write(number, queue, nullptr);
        }
        settle();
        _tier->rethrow_failure();
    }

    /// @brief Returns the address that stands for memory of a chunk between two steps: its own if
    /// it stays, otherwise one that only `memory_at` understands.
    /// @param data its address in staging memory, or where it stays
    [[gnu::cold]] [[nodiscard]] void* held_address(std::size_t chunk, void* data) const {
        if (!_plan.chunks()[chunk].is_offloaded) {
            return data;
        }
        std::size_t const number = _places[chunk].number;
        auto const first = reinterpret_cast<std::uintptr_t>(memory_of(number));
        auto const at = reinterpret_cast<std::uintptr_t>(data);
        bool const is_staged = at >= first && at < first + _slot_bytes;
        return is_staged ? _tier->address(number) + (at - first) : data; // other kinds stay
    }

    /// @brief Returns the memory that an address of `held_address` stands for, up to the end of its
    /// slice. Other addresses stand for themselves. Between two steps; waits. The memory may be
    /// used until the next call of any function that moves chunks.
    /// @param is_written whether the caller writes to it
    [[gnu::cold]] [[nodiscard]] std::byte* memory_at(void const* address, bool is_written) {
        std::size_t const number = _tier->chunk_at(address);
        if (number == _numbers.size()) {
            return static_cast<std::byte*>(const_cast<void*>(address));
        }
        require_no_visit();
        if (!_is_held) {
            settle();
            _is_held = true;
        }
        Slot& slot = slot_of(number);
        if (slot.held != number + 1) {
            write_held(slot);
            slot.held = 0;
            begin_read(number);
            slot.read.synchronise();
            _tier->rethrow_failure();
            slot.held = number + 1;
        }
        slot.is_written = slot.is_written || is_written;
        return memory_of(number)
               + (static_cast<std::byte const*>(address) - _tier->address(number));
    }

    /// @brief Copies bytes of one slice, from or to an address of `held_address`. Waits.
    [[gnu::cold]] void copy(void* to, void const* from, std::size_t bytes) {
        std::byte const* const source = memory_at(from, false);
        std::copy_n(source, bytes, memory_at(to, true));
    }

    /// @brief Waits for all requests. Reads that were begun are forgotten.
    void settle() const noexcept {
        for (Slot const& slot : _slots) {
            slot.read.synchronise();
            slot.written.synchronise();
        }
        _begun = 0;
    }

    /// @brief Throws the first failure of a request, if there is one.
    void rethrow_failure() const { _tier->rethrow_failure(); }

    /// @brief Sets the rows of a memory plan that are not those of memory alone.
    [[gnu::cold]] void add_to(MemoryPlan& plan) const {
        if (Config::Offload::offloads(BufferKind::master_weights)) {
            plan[BufferKind::master_weights] = _rows[0];
        }
        if (Config::Offload::offloads(BufferKind::optimizer_state)) {
            plan[BufferKind::optimizer_state] = _rows[1];
        }
        plan[BufferKind::staging].content_bytes = _staging.size_bytes();
        plan[BufferKind::commands].content_bytes += _tier->command_bytes();
        plan.tier_bytes = _tier->size_bytes();
    }

private:
    /// Staging memory of one chunk at a time.
    struct Slot {
        Event read{};    ///< the last read to it
        Event written{}; ///< the last write from it
        /// Between two steps: the number of the chunk that it holds, from 1, and whether that was
        /// changed.
        std::size_t held = 0;
        bool is_written = false;
    };

    /// Where the arrays of a chunk begin: in staging memory, or in the memory of what stays.
    struct Place {
        std::size_t number;   ///< of those that are offloaded
        std::size_t begin[2]; ///< offset of the master weights, and of the optimizer states
    };

    template <class Visitor>
    static void for_types(Visitor const& visit) {
        [&]<std::size_t... Type>(std::index_sequence<Type...>) {
            (visit.template operator()<typename Config::template TypesAt<Type>>(Type), ...);
        }(std::make_index_sequence<Config::types>());
    }

    /// The arrays of a parameter type that are offloaded: master weights, then states.
    template <class Types>
    [[nodiscard]] std::vector<ChunkArray> arrays_of() {
        using Masters = MasterWeightStore<Config, Types>;
        using States = OptimizerStateStore<Config>;
        std::vector<ChunkArray> arrays;
        auto const add = [&](std::size_t count, std::size_t bytes, std::size_t bytes_of_block) {
            for (std::size_t array = 0; bytes + bytes_of_block != 0 && array < count; ++array) {
                arrays.push_back({bytes, bytes_of_block});
            }
        };
        if (Config::Offload::offloads(BufferKind::master_weights)) {
            add(1, Masters::bytes, 0);
            add(1, 0, Masters::bytes_per_block);
        }
        _masters.push_back(arrays.size());
        if (Config::Offload::offloads(BufferKind::optimizer_state)) {
            constexpr std::size_t count = States::states;
            add(count, States::bytes / larger<std::size_t>(count, 1), 0);
            add(count, 0, States::bytes_per_block / larger<std::size_t>(count, 1));
        }
        return arrays;
    }

    /// Counts for each slice the blocks of its chunk that lie before it.
    [[gnu::cold]] void find_blocks() {
        for (std::size_t chunk = 0; chunk < _plan.chunks().size(); ++chunk) {
            std::size_t blocks = 0;
            for (Piece const& slice : _plan.slices(_plan.chunks()[chunk])) {
                _chunk_of.push_back(chunk);
                _blocks.push_back(blocks);
                blocks += blocks_of(slice.elements);
            }
        }
    }

    /// Allocates, and sets where the arrays of every chunk begin.
    [[gnu::cold]] void place(MemoryResource& memory, bool poison) {
        std::size_t const alignment =
            larger<std::size_t>(_tier->alignment(), ChunkPlan::array_alignment);
        std::size_t slot_bytes = 0;
        for (std::size_t number = 0; number < _numbers.size(); ++number) {
            slot_bytes = larger(slot_bytes, _tier->staging_bytes(number));
        }
        _slot_bytes = (slot_bytes + alignment - 1) / alignment * alignment;
        std::size_t resident[2] = {0, 0};
        for (std::size_t chunk = 0; chunk < _places.size(); ++chunk) {
            auto const& own = _plan.chunks()[chunk];
            std::size_t const type = _layout->bucket(own.bucket).type;
            std::size_t bytes[2] = {0, 0};
            for (std::size_t array = 0; array < _arrays[type].size(); ++array) {
                std::size_t const kind = array < _masters[type] ? 0 : 1;
                ChunkArray const& layout = _arrays[type][array];
                bytes[kind] +=
                    static_cast<std::size_t>(ChunkPlan::array_bytes(layout, _plan.slices(own)));
                for (Piece const& slice : _plan.slices(own)) {
                    _rows[kind].content_bytes +=
                        own.is_offloaded ? 0
                                         : slice.elements * layout.element_bytes
                                               + blocks_of(slice.elements) * layout.block_bytes;
                }
            }
            Place& to = _places[chunk];
            if (own.is_offloaded) {
                to.begin[0] = to.number % _slots.size() * _slot_bytes;
                to.begin[1] = to.begin[0] + bytes[0];
            } else {
                for (std::size_t kind = 0; kind < 2; ++kind) {
                    to.begin[kind] = std::exchange(resident[kind], resident[kind] + bytes[kind]);
                }
            }
        }
        for (std::size_t kind = 0; kind < 2; ++kind) {
            _rows[kind].padding_bytes = resident[kind] - _rows[kind].content_bytes;
        }
        std::size_t const spare = alignment - ChunkPlan::array_alignment; // all memory has 128
        std::size_t const staging = _slots.empty() ? 0 : _slots.size() * _slot_bytes + spare;
        _staging = Buffer<std::byte>(memory, staging, BufferKind::staging);
        _resident_masters = Buffer<std::byte>(memory, resident[0], BufferKind::master_weights);
        _resident_states = Buffer<std::byte>(memory, resident[1], BufferKind::optimizer_state);
        for (auto* buffer : {&_staging, &_resident_masters, &_resident_states}) {
            std::fill_n(buffer->data(), buffer->size(), std::byte(poison ? 0xff : 0));
        }
        void* begin = _staging.data();
        std::size_t room = staging;
        _staging_begin = staging == 0 ? nullptr
                                      : static_cast<std::byte*>(std::align(
                                          alignment, _slots.size() * _slot_bytes, begin, room));
    }

    [[nodiscard]] Slot& slot_of(std::size_t number) noexcept {
        return _slots[number % _slots.size()];
    }

    [[nodiscard]] std::byte* memory_of(std::size_t number) const noexcept {
        return _staging_begin + number % _slots.size() * _slot_bytes;
    }

    struct VisitScope {
        explicit VisitScope(bool& is_visited) noexcept : flag(is_visited) { flag = true; }
        VisitScope(VisitScope const&) = delete;
        VisitScope& operator=(VisitScope const&) = delete;
        ~VisitScope() { flag = false; }
        bool& flag;
    };

    /// A slot holds one chunk, and a visitor uses it.
    void require_no_visit() const {
        if (_is_visited) {
            throw_error<OutOfOrder>(
                {"zero: rank ", _rank,
                 ": offloaded states are read or written while for_each_owned_slice() or an update "
                 "of the caller visits them; do it before or after the visit, or take the values "
                 "from the slice that is visited."});
        }
    }

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

    void write_held(Slot& slot) {
        if (std::exchange(slot.is_written, false)) {
            slot.written = _tier->write(slot.held - 1, memory_of(slot.held - 1));
        }
    }

    void begin_read(std::size_t number) {
        Slot& slot = slot_of(number);
        Queue const queue = _tier->reading_queue(number);
        Backend::wait(queue, slot.written, Fence::chunk_written);
        TransferSpan<Backend> const span(queue, "read of chunk", number);
        slot.read = _tier->read(number, memory_of(number));
    }

    void write(std::size_t number, Queue queue, bool const* is_left_out) {
        Queue const own = _tier->writing_queue(number);
        Backend::wait(own, Backend::record(queue), Fence::chunk_updated);
        TransferSpan<Backend> const span(own, "write of chunk", number);
        slot_of(number).written = _tier->write(number, memory_of(number), is_left_out);
    }

    /// "master weights and optimizer state of 'w', elements 0 to 99, and 3 more slices"
    [[gnu::cold]] [[nodiscard]] std::string name_of_chunk(std::size_t number) const {
        std::string kinds;
        for (BufferKind const kind : Config::Offload::kinds) {
            kinds += text({kinds.empty() ? "" : " and ", name_of(kind)});
        }
        auto const slices = _plan.slices(_plan.chunks()[_numbers[number]]);
        Piece const& first = slices.front();
        std::string const more =
            slices.size() == 1 ? "" : text({", and ", slices.size() - 1, " more slices"});
        return text({kinds, " of '", _layout->parameter(first.parameter).name, "', elements ",
                     first.parameter_begin, " to ", first.parameter_begin + first.elements - 1,
                     more});
    }

    FlatLayout const* _layout;
    std::size_t _rank;
    std::vector<std::vector<ChunkArray>> _arrays; ///< by parameter type
    std::vector<std::size_t> _masters; ///< by type: how many of them are of master weights
    ChunkPlan _plan;
    std::vector<Place> _places;         ///< by chunk
    std::vector<std::size_t> _numbers;  ///< by number: the chunk
    std::vector<std::size_t> _chunk_of; ///< by slice
    std::vector<std::size_t> _blocks;   ///< by slice: blocks before it in its chunk
    MemoryRow _rows[2];                 ///< master weights and states that stay
    std::size_t _slot_bytes = 0;
    std::vector<Slot> _slots;
    Buffer<std::byte> _staging;
    Buffer<std::byte> _resident_masters;
    Buffer<std::byte> _resident_states;
    std::byte* _staging_begin = nullptr;
    mutable std::size_t _begun = 0; ///< chunks of this update whose read was begun
    bool _is_visited = false;       ///< whether `visit` runs
    bool _is_held = false;          ///< whether staging memory holds chunks between two steps
    std::unique_ptr<Tier> _tier;    ///< destroyed first: its requests use the memory
};

} // namespace ZERO_NAMESPACE::detail
