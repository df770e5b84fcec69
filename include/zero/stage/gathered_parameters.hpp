#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/parameter_spec.hpp"
#include "detail/common/gather_on_host.hpp"
#include "detail/state/gather_checks.hpp"
#include "detail/state/parameter_named.hpp"
#include "detail/state/state_access.hpp"
#include "detail/state/state_table.hpp"
#include "detail/state/state_transfer.hpp"
#include "engine.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The access that a gather gives.
enum class Gather : std::uint8_t {
    read,             ///< every rank reads
    one_rank_writes,  ///< the values of one rank become those of all; other ranks' writes are
                      ///< dropped
    all_write_equally ///< every rank writes the same values; only their hashes are sent
};

/// @brief Parameters as a whole, on every rank and in every stage, between two steps: for reading,
/// or for writing weights that then reach the master weights, shards and replicas of all ranks.
///
/// Values are copies in full precision, as `TrainingState::full_fp32_parameter` returns them, so an
/// element that is not written keeps every bit of its master weight. Optimizer states are kept. The
/// copies take 4 bytes per gathered element on every rank.
///
/// `commit` stores what was written; the destructor calls it unless an exception unwinds through
/// the scope, which drops the writes on that rank. An error in the destructor breaks the engine, so
/// call `commit` to get the exception. Every rank must end a gather in the same way.
///
/// Gathers may be nested and overlap. Each one reads the values that were committed before it
/// began. A parameter is in at most one gather for writing at a time; a second is refused. The last
/// commit wins over anything else that changed the parameter meanwhile (`load_checkpoint`,
/// `TrainingState`). `begin_step` is refused while a gather for writing is open, and the engine
/// must outlive it.
///
/// A view of the engine, not a part of it: programs that do not include this header do not compile
/// it.
///
///     auto weights = zero::gather(engine, {"embedding"}, zero::Gather::one_rank_writes);
///     weights.writable("embedding")[0] = 1.0F; // only rank 0's value counts
///     weights.commit();
template <class EngineType>
class GatheredParameters;

/// @brief Gathered parameters of an engine; see above.
template <class Config>
class GatheredParameters<Engine<Config>> {
public:
    /// @brief Gathers parameters. Collective, between steps; waits.
    /// @param parameters their numbers in registration order, each once
    /// @param writer the rank whose values are stored by `Gather::one_rank_writes`; otherwise 0
    /// @throws InvalidArgument on every rank if ranks gather other parameters or for another use;
    /// OutOfOrder inside a step, or if a parameter is gathered for writing twice. Nothing was
    /// changed
    explicit GatheredParameters(Engine<Config>& engine, std::vector<std::size_t> parameters,
                                Gather mode = Gather::read, std::size_t writer = 0)
        : _access(engine), _index(Index::of(_access)), _transfer(_access, table(_index)),
          _parameters(std::move(parameters)), _mode(mode), _writer(writer) {
        for (std::size_t const parameter : _parameters) {
            _items.push_back({parameter, 1, {}});
        }
        begin();
    }

    /// @brief The same by name. A parameter that is registered in `tiles` has the name of the
    /// whole.
    /// @throws InvalidArgument also if no parameter has such a name
    explicit GatheredParameters(Engine<Config>& engine, std::span<std::string_view const> names,
                                Gather mode = Gather::read, std::size_t writer = 0)
        : _access(engine), _index(Index::of(_access)), _transfer(_access, table(_index)),
          _mode(mode), _writer(writer) {
        for (std::string_view const name : names) {
            auto const found = _index->names.find(_access.layout(), name);
            _items.push_back({found.begin, found.size(), {}});
            for (std::size_t parameter = found.begin; parameter < found.end; ++parameter) {
                _parameters.push_back(parameter);
            }
        }
        begin();
    }
    GatheredParameters(GatheredParameters const&) = delete;
    GatheredParameters& operator=(GatheredParameters const&) = delete;

    /// @brief Commits what was written, unless that was done or an exception unwinds.
    ~GatheredParameters() {
        if (!_is_open) {
            return;
        }
        if (std::uncaught_exceptions() > _exceptions || _access.protocol().is_broken()) {
            close();
            return;
        }
        try {
            commit();
        } catch (std::exception const& error) {
            _access.break_down(error.what());
        } catch (...) {
            _access.break_down("an exception that is not a std::exception");
        }
    }

    /// @brief Returns the values of a parameter. They stay until this object ends, whatever happens
    /// to the parameter. @throws InvalidArgument for a parameter that was not gathered
    [[nodiscard]] std::span<float const> values(std::size_t parameter) const {
        return find(parameter);
    }

    /// @brief The same by name.
    [[nodiscard]] std::span<float const> values(std::string_view name) const { return find(name); }

    /// @brief Returns the values for writing. @throws OutOfOrder for `Gather::read`, and after
    /// `commit`
    [[nodiscard]] std::span<float> writable(std::size_t parameter) {
        return writable_part(find(parameter));
    }

    /// @brief The same by name.
    [[nodiscard]] std::span<float> writable(std::string_view name) {
        return writable_part(find(name));
    }

    /// @brief Stores the values on every rank, rounded to the stored types, and ends writing.
    /// Collective, between steps, with no handle of `acquire` held; waits.
    /// @throws InvalidArgument on every rank if `Gather::all_write_equally` finds other values on
    /// one of them. It names the parameter and the rank; nothing was changed, and what was written
    /// is dropped. OutOfOrder if a handle is held, or inside a step; then the gather stays open
    void commit() {
        require_open("commit()");
        _access.wait_to_write("commit()"); // if it refuses, what was written can be committed later
        close();
        if (_mode == Gather::all_write_equally) {
            require_equal();
        }
        for (std::size_t const parameter : _parameters) {
            std::span<float const> const values = find(parameter);
            if (_mode == Gather::one_rank_writes) {
                bool const is_writer = _access.rank() == _writer;
                _transfer.broadcast(detail::ArrayKind::parameter, 0, parameter,
                                    is_writer ? values : std::span<float const>(), 1.0F, _writer);
            } else {
                _access.guard([&] {
                    _transfer.store(detail::ArrayKind::parameter, 0, parameter, 0, values);
                });
            }
        }
        _access.publish_written();
    }

private:
    /// The tables of all parameters. The first gather makes them, and the engine keeps them, so
    /// that a call does not depend on the number of parameters.
    struct Index {
        explicit Index(detail::StateAccess<Config> const& access)
            : names(access.layout()), table(access.layout(), access.arrays()) {}

        static std::shared_ptr<Index const> of(detail::StateAccess<Config> const& access) {
            std::shared_ptr<void const>& kept = access.gather_index();
            if (kept == nullptr) {
                kept = std::make_shared<Index const>(access);
            }
            return std::static_pointer_cast<Index const>(kept);
        }

        detail::ParameterNames names;
        detail::StateTable table;
    };

    static std::shared_ptr<detail::StateTable const>
    table(std::shared_ptr<Index const> const& index) {
        return {index, &index->table};
    }

    /// A parameter, or all tiles of one.
    struct Item {
        std::size_t first = 0; ///< layout index of the first parameter
        std::size_t count = 1;
        std::vector<float> values{};
        std::string name{}; ///< as of the gather; the layout may be another one later
        std::vector<std::size_t> begins{}; ///< of each parameter, in `values`
    };

    void begin() {
        require_valid();
        for (Item& item : _items) {
            ParameterSpec const& spec = _access.layout().parameter(item.first);
            item.name = item.count == 1 ? spec.name : spec.tile.of;
        }
        if (_mode != Gather::read) {
            _access.protocol().require_no_visit("gather() for writing");
            _access.open_write(detail::as_span(_parameters));
            _is_open = true;
        }
        try {
            require_same_call();
            for (Item& item : _items) {
                for (std::size_t tile = 0; tile < item.count; ++tile) {
                    auto const values =
                        _transfer.gather(detail::ArrayKind::parameter, 0, item.first + tile);
                    item.begins.push_back(item.values.size());
                    item.values.insert(item.values.end(), values.begin(), values.end());
                }
            }
        } catch (...) {
            close();
            throw;
        }
    }

    void require_valid() const {
        _access.require_idle("gather()", _mode == Gather::read ? detail::StateUse::read_all
                                                               : detail::StateUse::change);
        FlatLayout const& layout = _access.layout();
        for (std::size_t i = 0; i < _parameters.size(); ++i) {
            std::size_t const parameter = _parameters[i];
            if (parameter >= layout.parameters().size()) {
                detail::throw_error<InvalidArgument>(
                    {"zero: parameter ", parameter, " does not exist; the model has ",
                     layout.parameters().size(), " (rank ", _access.rank(), ")."});
            }
            for (std::size_t other = 0; other < i; ++other) {
                if (_parameters[other] == parameter) {
                    detail::throw_error<InvalidArgument>(
                        {"zero: gather() lists parameter '", layout.parameter(parameter).name,
                         "' twice; list it once (rank ", _access.rank(), ")."});
                }
            }
        }
        if (auto const ranks = static_cast<std::size_t>(_access.communicator().size());
            _writer >= ranks) {
            detail::throw_error<InvalidArgument>({"zero: rank ", _writer,
                                                  " cannot write what gather() returns; there are ",
                                                  ranks, " ranks."});
        }
    }

    [[nodiscard]] std::vector<std::uint64_t> of_all_ranks(std::vector<std::uint64_t> const& own,
                                                          char const* what) const {
        std::vector<std::uint64_t> all;
        _access.guard([&] { all = detail::gather_on_host(_access, own, what); });
        return all;
    }

    void require_same_call() const {
        std::vector<std::uint64_t> const own{detail::hash_of_indices(detail::as_span(_parameters)),
                                             static_cast<std::uint64_t>(_mode), _writer};
        detail::require_same_gather(of_all_ranks(own, "parameters to gather"), _access.rank());
    }

    void require_equal() const {
        std::vector<std::uint64_t> own;
        for (std::size_t const parameter : _parameters) {
            own.push_back(detail::hash_of_bits(find(parameter)));
        }
        auto const all = of_all_ranks(own, "hashes of written parameters");
        auto const found = detail::first_difference(all, own.size());
        if (found.rank != 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: rank ", found.rank, " and rank 0 wrote different values into parameter '",
                 _access.layout().parameter(_parameters[found.value]).name,
                 "', but Gather::all_write_equally needs the same on every rank (rank ",
                 _access.rank(),
                 "); nothing was changed. Write the same values, or use "
                 "Gather::one_rank_writes."});
        }
    }

    void require_open(char const* call) const {
        if (!_is_open) {
            detail::throw_error<OutOfOrder>(
                {"zero: ", call,
                 (_mode == Gather::read
                      ? " of parameters that were gathered for reading; pass "
                        "Gather::one_rank_writes or Gather::all_write_equally to gather()"
                      : " after commit(); gather the parameters again"),
                 " (rank ", _access.rank(), ")."});
        }
    }

    void close() noexcept {
        if (std::exchange(_is_open, false)) {
            _access.close_write(detail::as_span(_parameters));
        }
    }

    [[nodiscard]] std::span<float const> find(std::size_t parameter) const {
        for (Item const& item : _items) {
            if (item.first <= parameter && parameter < item.first + item.count) {
                std::size_t const tile = parameter - item.first;
                std::size_t const end =
                    tile + 1 < item.count ? item.begins[tile + 1] : item.values.size();
                return detail::as_span(item.values)
                    .subspan(item.begins[tile], end - item.begins[tile]);
            }
        }
        detail::throw_error<InvalidArgument>({"zero: parameter ", parameter,
                                              " is not one of those that gather() was called with "
                                              "(rank ",
                                              _access.rank(), "); list it there."});
    }

    [[nodiscard]] std::span<float const> find(std::string_view parameter) const {
        for (Item const& item : _items) {
            if (item.name == parameter) {
                return detail::as_span(item.values);
            }
        }
        detail::throw_error<InvalidArgument>(
            {"zero: parameter '", parameter,
             "' is not one of those that gather() was called with (rank ", _access.rank(),
             "); list it there."});
    }

    [[nodiscard]] std::span<float> writable_part(std::span<float const> values) const {
        require_open("writable()");
        return {const_cast<float*>(values.data()), values.size()}; // items are not const
    }

    detail::StateAccess<Config> _access;
    std::shared_ptr<Index const> _index;
    detail::StateTransfer<Config> _transfer;
    std::vector<std::size_t> _parameters; ///< layout indices of all gathered parameters
    Gather _mode;
    std::size_t _writer;
    bool _is_open = false; ///< open for writing
    int _exceptions = std::uncaught_exceptions();
    std::vector<Item> _items;
};

/// @brief Deduces the engine from a stage.
template <class Stage>
GatheredParameters(Stage&, std::vector<std::size_t>, Gather = Gather::read, std::size_t = 0)
    -> GatheredParameters<typename Stage::EngineType>;

/// @brief Gathers parameters by name; see `GatheredParameters`. Collective, between steps; waits.
/// @param names the same on every rank, in the same order
template <class Stage>
[[nodiscard]] GatheredParameters<typename Stage::EngineType>
gather(Stage& stage, std::initializer_list<std::string_view> names, Gather mode = Gather::read,
       std::size_t writer = 0) {
    return GatheredParameters<typename Stage::EngineType>(
        stage, std::span<std::string_view const>(names.begin(), names.size()), mode, writer);
}

} // namespace ZERO_NAMESPACE
