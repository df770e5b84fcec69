# What Doxygen reads instead of a header, line for line. What is in a namespace `detail` is left out, but for the engine, whose members are those of a stage. Members
# that every model of a concept has are documented here, once, instead of in each model; where a header says more, that counts.

function text_for(line) {
    if (line ~ /using policy_category =/) return "Whose place in a stage this policy takes; at most one of a category."
    if (line ~ /using Options =/) return "What can be chosen at run time, with its ranges."
    if (line ~ /^struct [A-Za-z]+Options \{\};/) return "Nothing can be chosen."
    if (line ~ /^struct [A-Za-z]+Options \{/) { sub(/^struct /, "", line); sub(/Options \{.*/, "", line); return "What can be chosen about `" line "`." }
    if (line ~ /static void validate\(Options/) return "Called before anything is made. @throws InvalidArgument naming the first option that is out of its range."
    if (line ~ /static void add_to\(Hash/) return "Adds what the ranks have to agree on to what they compare."
    if (FILENAME ~ /\/layout\//) {
        if (line ~ /struct State \{\};/) return "What the rule carries from bucket to bucket: nothing."
        if (line ~ /struct State \{/) return "What the rule carries from bucket to bucket."
        if (line ~ /constexpr bool cuts_parameters/) return "Whether a parameter may have several owners, so that an optimizer of whole parameters cannot be used."
        if (line ~ /constexpr bool cuts_group/) return "Whether shards are cut from the whole group of parameters instead of bucket by bucket; then collectives are uneven, and stage 3 is refused."
        if (line ~ /constexpr bool is_even/) return "Whether all extents of a bucket are equally long, as native collectives need it."
        if (line ~ /constexpr bool may_span_units/) return "Whether a bucket may hold parameters of several units even in stage 3; a rule that needs that is refused there."
        if (line ~ /static State begin\(/) return "The state before the first bucket. `elements` are the sizes of the group's parameters in gradient-ready order."
        if (line ~ /static void partition\(/) return "Gives every item of the next bucket its offset, a multiple of 64, may reorder them, and sets `cuts`: W + 1 monotone offsets, of which rank r owns [cuts[r], cuts[r + 1])."
        if (line ~ /static std::vector<std::size_t> order\(/) return "The order in which buckets are filled, as numbers of `elements`."
        if (line ~ /static std::size_t take\(/) return "How many of the next items, in gradient-ready order, form a bucket: from 1 to `items.size()`. Pure."
    }
    if (FILENAME ~ /loss_scaler/) {
        if (line ~ /struct State \{/) return "All that the rule remembers, in the backend's memory; trivially copyable, and the same on all ranks."
        if (line ~ /float scale = 1/) return "What the loss is multiplied by: positive, finite."
        if (line ~ /constexpr bool skips_overflow/) return "Whether a step with infinite or NaN gradients changes nothing."
        if (line ~ /static State initial\(/) return "The state before the first step."
        if (line ~ /static State next\(/) return "The state after a step. `overflow` was reduced over all ranks. Pure; callable on host and device."
        if (line ~ /static bool is_exhausted\(/) return "Whether an overflow in this state cannot be answered by a smaller scale."
        if (line ~ /static void validate_state\(/) return "Refuses a state from elsewhere that the rule cannot go on from. @throws InvalidArgument"
    }
    if (FILENAME ~ /\/policy\//) {
        if (line ~ /using Type =/) return "The storage type that the policy chooses; void for none."
        if (line ~ /constexpr MasterForm form/) return "How the weights are kept."
        if (line ~ /constexpr bool is_block_scaled/) return "Whether each block of 64 states has a scale."
    }
    if (FILENAME ~ /\/ops\//) {
        if (line ~ /struct Hyper \{/) return "The constants of one step, made on the host from options, learning rate and step count."
        if (line ~ /void operator\(\)\(F gradient, F& parameter/) return "One step of one element, or of a pack of them. `gradient` is unscaled, averaged and clipped."
        if (line ~ /static .*std::size_t scratch_floats\(/) return "Floats that the update of a matrix of this shape needs beside it."
    }
    if (FILENAME ~ /\/comm\/|\/cuda\/nccl_communicator/) {
        if (line ~ /using Backend =/) return "What owns the memory that is communicated."
        if (line ~ /using Queue =/) return "What the movement of data is enqueued on."
        if (line ~ /using Event =/) return "A point in a queue."
        if (line ~ /int rank\(\)/) return "The number of this rank, from 0 to W - 1."
        if (line ~ /int size\(\)/) return "W, the number of ranks of the group."
        if (line ~ /void reduce_scatter\(T/) return "Collective, as `Communicator` says: `send` holds cuts[W] elements, `receive` gets the sum of this rank's extent."
        if (line ~ /void all_gather\(T/) return "Collective, as `Communicator` says: `send` is this rank's extent, `receive` gets cuts[W] elements."
        if (line ~ /void all_reduce\(T/) return "Collective, as `Communicator` says: `receive` gets the sum of cuts[W] elements over all ranks."
        if (line ~ /void broadcast\(T/) return "Collective, as `Communicator` says: all ranks get the elements of `root`."
        if (line ~ /void all_reduce_integers\(/) return "Collective, as `Communicator` says: exact, in place."
        if (line ~ /void abort\(/) return "Releases every rank from every collective with `Aborted`, which holds the cause. From any thread. A provisional cause may be replaced for a moment."
        if (line ~ /void rethrow_failure\(\)/) return "Throws what the transport noticed after its calls had returned."
        if (line ~ /constexpr bool is_checked/) return "Whether the ranks' calls are compared before each collective."
    }
    if (FILENAME ~ /host_backend|\/cuda\/.*backend/) {
        if (line ~ /using Queue =/) return "A handle of what commands are enqueued on; small, copyable."
        if (line ~ /using Event =/) return "A point in a queue; complete when default-constructed."
        if (line ~ /static Queue handle\(/) return "The handle of a queue that an engine owns."
        if (line ~ /static MemoryResource& default_memory\(/) return "Where buffers come from unless the options name another resource."
        if (line ~ /static Event record\(/) return "The point after all commands so far."
        if (line ~ /static void wait\(/) return "What is enqueued after this runs after the event. The fence says what for; tests leave one out."
        if (line ~ /static void synchronise\(/) return "Waits on the calling thread."
        if (line ~ /static void rethrow_failure\(/) return "Throws what a command on the queue threw."
        if (line ~ /static void run\(/) return "Enqueues a functor, one call of it."
        if (line ~ /static void fill\(/) return "Enqueued: out[i] = value."
        if (line ~ /static void copy_bytes\(/) return "Enqueued: a copy between ranges that do not overlap; nothing when they are the same."
        if (line ~ /static void convert\(/) return "Enqueued: out[i] = To(float(in[i]) * factor), rounded once."
        if (line ~ /static void accumulate\(/) return "Enqueued: sum[i] = To(float(sum[i]) + float(in[i])), rounded once."
        if (line ~ /static void sum_integers\(/) return "Enqueued: the sum over `world` peers. The pointers stay valid until the command ran."
        if (line ~ /static void min_integers\(/) return "Enqueued: the minimum over `world` peers. The pointers stay valid until the command ran."
    }
    if (FILENAME ~ /host\/tensor/ && line ~ /^    (\[\[nodiscard\]\] )?[a-z].*\) const noexcept/) return "As `TensorArchetype` says."
    if (FILENAME ~ /stage\/handles/ && line ~ /^    (Weights|Gradients|LossScale|StepTicket|MicroSteps)\([A-Za-z].*noexcept|^        Iterator\(Engine/ && line !~ /&&/) return "Engines make them."
    if (line ~ /^ *[A-Za-z]+(& operator=)?\([A-Za-z]+&& other\) noexcept|^ *[A-Za-z]+\([A-Za-z]+&&\) noexcept = default/) return "What was moved from is empty."
    if (FILENAME ~ /\/(core|cuda)\/[a-z_]*error/ && line ~ /explicit [A-Za-z]+\(std::string const& message/) return "@param message says what to do, @param where who called, @param code of the interface below, or 0"
    return ""
}

function comment(text) { return text == "" ? "" : "/** " (text ~ /^@/ ? "" : "@brief ") text " */ " }

function put(line, before) {
    text = before ? "" : text_for(line)
    if (text == "" || line ~ /\/\/\/</) print line
    else if (line ~ /;[^{}]*$/ && line !~ /\(/) print line " ///< " text
    else print comment(text) line
}

# A comment stands before the line `template`, so that line waits for the next.
{
    is_comment = $0 ~ /^ *\/\/\// || $0 ~ /\*\/ *$/
    if (is_hidden && $0 ~ /^} \/\/ namespace .*detail/) { is_hidden = 0; print "} /** @endcond */"; documented = 0; next }
    if (!is_hidden && $0 ~ /^(inline )?namespace .*detail \{/ && FILENAME !~ /stage\/engine\.hpp/) { is_hidden = 1; print "/** @cond */ " $0; next }
    if (is_hidden) { print; next }
    if ($0 ~ /^ *template <.*> *$/) { held = $0; has_held = 1; next }
    if (has_held) {
        print comment(documented ? "" : text_for($0)) held
        print
        has_held = 0
    } else {
        put($0, documented)
    }
    documented = is_comment
}
