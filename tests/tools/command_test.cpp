// Command lines of `coshard` that cannot be: each is one line on stderr and exit code 2, before
// anything runs.
#include "tools/command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "profiling/child_process.h"
#include "tests/support/json.h"

namespace coshard::tools {
namespace {

struct Ended {
  int code;
  std::string out, err;
};

Ended run(const std::string& line) {
  std::vector<std::string> words = {"coshard"};
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = command(static_cast<int>(argv.size()), argv.data());
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

void expect_refused(const std::string& line, const std::string& named) {
  const Ended ended = run(line);
  EXPECT_EQ(ended.code, 2) << line;
  EXPECT_EQ(ended.out, "") << line;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << line << ": " << ended.err;
  EXPECT_NE(ended.err.find(named), std::string::npos) << line << " said: " << ended.err;
}

TEST(Command, ACommandThatIsUnknownOrMissingIsNamedWithThoseThatThereAre) {
  expect_refused(
      "",
      "coshard needs a command: bench, ckpt, conform, doctor, completion, plan, simulate, trace "
      "or run");
  expect_refused("bogus",
                 "unknown command 'bogus' of coshard; expected bench, ckpt, conform, doctor");
  expect_refused("--bogus", "unknown option --bogus of coshard");
  expect_refused(
      "bench",
      "bench needs a command: dispatch, redistribute, overlap, checkpoint, train, forecast, "
      "processes or gpu");
  expect_refused("bench bogus", "unknown command 'bogus' of bench; expected dispatch, ");
  expect_refused("plan", "plan needs a command: explain");
  expect_refused("plan bogus", "unknown command 'bogus' of plan; expected explain");
  expect_refused("doctor bogus", "bogus");
}

TEST(Command, WhatWasMeantIsSuggested) {
  expect_refused("bnech", "unknown command 'bnech' of coshard; did you mean bench?");
  expect_refused("bench trian", "unknown command 'trian' of bench; did you mean train?");
  expect_refused("completion bahs", "did you mean bash?");
  expect_refused("plan explian", "unknown command 'explian' of plan; did you mean explain?");
  expect_refused("doctor --devise cpu",
                 "unknown option --devise of doctor; did you mean --device?");
  expect_refused("bench train --stpes=3", "unknown option --stpes of train; did you mean --steps?");
  expect_refused("bench dispatch --comm local", "did you mean --communicator?");
  expect_refused("bench train --steps", "--steps needs a value");
  expect_refused("bench train --steps= --rounds 2", "--steps needs a value");
}

TEST(Command, HelpIsNoError) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("bench train --help").out.find("--rounds INT:1 to "), std::string::npos);
}

TEST(Command, EveryCommandHasHelpAndVersion) {
  for (const std::string command :
       {"", "bench ", "bench dispatch ", "bench redistribute ", "bench overlap ", "bench train ",
        "bench gpu ", "conform ", "doctor ", "plan ", "plan explain ", "completion ",
        "completion bash ", "simulate ", "trace ", "trace report ", "run "}) {
    const Ended help = run(command + "--help"), version = run(command + "--version");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Usage: coshard " + command), std::string::npos) << help.out;
    EXPECT_EQ(version.code, 0) << command << version.err;
    EXPECT_EQ(version.out, "coshard " COSHARD_PROJECT_VERSION "\n") << command;
  }
}

TEST(Command, HelpEndsWithAnExampleOfItsOwn) {
  for (const std::string command :
       {"bench dispatch", "bench redistribute", "bench overlap", "bench train", "bench gpu",
        "conform", "doctor", "plan explain", "simulate", "trace report", "trace merge", "run"}) {
    const std::string help = run(command + " --help").out;
    EXPECT_NE(help.find("Example: coshard " + command), std::string::npos) << help;
  }
}

TEST(Command, SimulateNamesWhatIsNotAsItShouldBe) {
  expect_refused("simulate --mesh tp=8", "--model");
  expect_refused("simulate --model llama-70b", "simulate needs --mesh, such as dp=32,tp=8");
  expect_refused("simulate --model llama-7b --mesh tp=8",
                 "--model llama-7b: No such file or directory; expected llama-8b, llama-70b or a "
                 "model's config.json");
  expect_refused("simulate --model llama-8b --mesh tp=8 --gpu h1",
                 "--gpu h1: No such file or directory; expected h100, h200");
  expect_refused("simulate --model llama-8b --mesh tp=8 --link nvl",
                 "--link nvl: No such file or directory; expected nvlink4");
  expect_refused("simulate --model llama-8b --mesh pp=8", "unknown dimension pp");
  expect_refused("simulate --model llama-8b --mesh tp=16", "not divisible by tp=16");
  expect_refused("simulate --model llama-8b --mesh dp=2,tp=8 --batch 3",
                 "--batch 3 is not divisible by dp=2");
  expect_refused("simulate --model llama-8b --mesh tp=8 --plan pp",
                 "--plan pp: expected tp or tp-sp");
  expect_refused("simulate --model llama-8b --search", "--search needs --gpus N");
}

// What bash offers for the last word of `line`, one per line.
std::string offered(const std::string& line) {
  const std::string script = coshard::testing::temporary_path("completion");
  std::ofstream(script) << run("completion bash").out << "COMP_WORDS=(" << line
                        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_coshard\n"
                           "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const std::string words = output_of({"bash", script}).value_or("bash failed");
  std::filesystem::remove(script);
  return words;
}

TEST(Completion, OffersWhatTheCommandLineHas) {
  EXPECT_EQ(offered("coshard be"), "bench\n");
  EXPECT_EQ(offered("coshard bench tr"), "train\n");
  EXPECT_EQ(offered("coshard bench overlap --ra"), "--ranks\n");
  EXPECT_EQ(offered("coshard bench train --ranks 2 --plan tp-"), "tp-sp\n");
  EXPECT_EQ(offered("coshard doctor --device ''"), "cpu\ncuda\n");
  EXPECT_EQ(offered("coshard plan explain --shape ''"), "\n");  // then files
  EXPECT_EQ(offered("coshard plan explain --dtype b"), "bf16\nbool\n");
  EXPECT_EQ(offered("coshard doctor --communicator l"), "local\n");
  EXPECT_EQ(offered("coshard run -n 2 --mpi ''"), "openmpi\nmpich\n");
  EXPECT_EQ(offered("coshard run ./pro"), "\n");
  EXPECT_EQ(offered("coshard run -n 2 ./program --"), "\n");
  EXPECT_EQ(offered("coshard simulate --gpu ''"), "h100\nh200\nb200\nideal\n");
}

TEST(Completion, OffersEveryOptionThatHelpLists) {
  for (const std::string command :
       {"bench train", "bench gpu", "conform", "plan explain", "simulate", "run"}) {
    const std::string all = "\n" + offered("coshard " + command + " --");
    std::istringstream help(run(command + " --help").out);
    int options = 0;
    for (std::string line; std::getline(help, line);) {
      const std::size_t begin = line.find("--");
      if (line.rfind("  -", 0) != 0 || begin == std::string::npos) continue;
      const std::string name = line.substr(begin, line.find(' ', begin) - begin);
      EXPECT_NE(all.find("\n" + name + "\n"), std::string::npos) << name << " of " << command;
      ++options;
    }
    EXPECT_GT(options, 4) << command;
  }
}

TEST(Command, TraceReportNamesTheFileThatItCannotRead) {
  expect_refused("trace", "trace needs a command: report");
  expect_refused("trace report", "FILE is required");
  expect_refused("trace report a --jsno", "unknown option --jsno of report; did you mean --json?");
  expect_refused("trace report /nowhere/a.json", "/nowhere/a.json: No such file or directory");
  expect_refused("trace report /", "/: Is a directory");
}

// The first of the page and that of --help: one command, for GPUs that hold it.
TEST(Command, TheExampleOfSimulateFits) {
  std::ifstream page(COSHARD_CONFORMANCE_CASES "/../../../docs/simulate.md");
  std::string line;
  const std::string folder = "build/tools/";
  while (std::getline(page, line) && !line.starts_with(folder + "coshard simulate ")) continue;
  ASSERT_NE(line, "");
  line = line.substr(folder.size());
  for (std::string more; line.ends_with('\\') && std::getline(page, more);)
    line = line.substr(0, line.size() - 1) + more.substr(more.find_first_not_of(' '));
  EXPECT_NE(run("simulate --help").out.find("Example: " + line + "\n"), std::string::npos) << line;
  const std::string trace = " --trace step.json", words = line.substr(sizeof "coshard" - 1);
  ASSERT_TRUE(words.ends_with(trace)) << words;
  const Ended ended = run(words.substr(0, words.size() - trace.size()));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("memory per GPU, peak "), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("does not fit"), std::string::npos) << ended.out;
}

TEST(Command, PlanExplainRefusesWhatRedistributeRefuses) {
  expect_refused("plan explain --mesh 2 --shape 4 --from R --to P(sum)",
                 "R to P(sum): R cannot become P(sum)");
  expect_refused("plan explain --mesh 2 --shape 4 --from P(sum) --to R --dtype bool",
                 "all_reduce: bool supports min (and) and max (or), not sum");
}

TEST(Command, PlanExplainTakesAScalarAndALinkForEachDimension) {
  const std::string plan = "plan explain --mesh dp=2,tp=2 --from P(sum),P(sum) --to R,R ";
  const Ended scalar = run(plan + "--shape=");
  EXPECT_EQ(scalar.code, 0) << scalar.err;
  EXPECT_EQ(scalar.out, run(plan).out);
  const Ended together = run(plan + "--shape 64,64 --link dp=20us,1GB/s,tp=2GB/s");
  EXPECT_EQ(together.code, 0) << together.err;
  EXPECT_EQ(together.out, run(plan + "--shape 64,64 --link dp=20us,1GB/s --link tp=2GB/s").out);
  expect_refused(plan + "--link dp=1GB/s,dp=2GB/s", "--link dp=2GB/s: that of dp is given twice");
  expect_refused(plan + "--link dp=20us,1GB/s,", "20us,1GB/s,");
  expect_refused(plan + "--link dp=1GB/s,pp=2GB/s", "'pp=2GB/s' names no dimension of the mesh");
}

TEST(Command, PlanExplainShowsWhatLinearLayersOverlapWith) {
  const std::string sharded =
      "plan explain --mesh tp=4 --plan tp-sp --dim 4096 --heads 32 --ffn 14336 --seq 4096 ";
  const Ended slow = run(sharded + "--link 20us,2GB/s --module");
  EXPECT_EQ(slow.code, 0) << slow.err;
  EXPECT_EQ(
      slow.out.rfind("forward on tp=4, link 20 us, 2 GB/s, GEMM times by a constant rate\n", 0), 0U)
      << slow.out;
  EXPECT_EQ(std::count(slow.out.begin(), slow.out.end(), '\n'), 11) << slow.out;
  EXPECT_NE(slow.out.find("\nwq, wk and wv share one all_gather"), std::string::npos) << slow.out;
  EXPECT_NE(slow.out.find("all_gather     by shards      1"), std::string::npos) << slow.out;
  EXPECT_NE(slow.out.find("reduce_scatter by rows"), std::string::npos) << slow.out;
  const Ended fast = run(sharded + "--link 1TB/s --module layers.*.mlp.w2");
  EXPECT_EQ(std::count(fast.out.begin(), fast.out.end(), '\n'), 3) << fast.out;
  EXPECT_NE(fast.out.find("layers.*.mlp.w2        4  reduce_scatter serial         -"),
            std::string::npos)
      << fast.out;
  const Ended one = run(sharded + "--link 1TB/s --module layers.3.mlp");
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 6) << one.out;
  EXPECT_NE(one.out.find("layers.*.mlp.w2        1  "), std::string::npos) << one.out;
  const Ended unknown = run("plan explain --mesh 2 --module layers.*.attn");
  EXPECT_NE(unknown.out.find("link unknown"), std::string::npos) << unknown.out << unknown.err;
  EXPECT_NE(unknown.out.find("no link is known: give --link or --calibration"), std::string::npos);
  EXPECT_NE(unknown.out.find("its input is replicated: there is no collective"), std::string::npos);
}

TEST(Command, PlanExplainOfModulesIsJsonAndNamesWhatDoesNotFit) {
  const Ended json = run("plan explain --module --mesh tp=2 --link 1ms,100MB/s --json");
  EXPECT_TRUE(coshard::testing::json_holds(json.out, R"(
assert len(d['modules']) == 8 and d['link']['us'] == 1000
w2 = d['modules'][6]
assert w2['module'] == 'layers.*.mlp.w2' and w2['collective'] == 'all_reduce', w2
assert w2['serial_ms'] > 0 and w2['overlapped_ms'] > 0 and w2['why'], w2)"))
      << json.out;
  expect_refused("plan explain --mesh 2", "--from is required, or --module");
  expect_refused("plan explain --mesh 2 --from R --to R --threads 2", "--threads needs --module");
  expect_refused("plan explain --mesh 2 --module --shape 4",
                 "--shape cannot be combined with --module");
  expect_refused("plan explain --mesh 2 --module --device cuda --threads 2",
                 "--threads 2 needs --device cpu, got --device cuda");
  expect_refused("plan explain --module --mesh dp=2,tp=2", "--mesh dp=2,tp=2 has 2 dimensions");
  expect_refused("plan explain --module bogus --mesh 2", "--module bogus matches no linear layer");
  expect_refused("plan explain --module --mesh tp=4 --dim 1000000000 --seq 1000000",
                 "--batch 8 --seq 1000000 --dim 1000000000 --ffn 688 --vocab 256: "
                 "layers.*.attn.wq takes 1.6e+25 flops, more than 1e+18");
  expect_refused("plan explain --module --mesh tp=4 --link 1us,0.01B/s",
                 "--mesh tp=4: the all_reduce of layers.*.attn.wo takes more than 1e+15 ns");
  expect_refused("plan explain --module --mesh 1000000 --heads 1000000",
                 "--mesh 1000000: more than 65536 ranks");
  expect_refused("plan explain --module layers.4 --layers 4 --mesh 2",
                 "--module layers.4 matches no linear layer of 4 blocks");
  expect_refused("plan explain --mesh dp=2 --from R --to R --link dp=1GB/s --link dp=2GB/s",
                 "--link dp=2GB/s: that of dp is given twice");
  expect_refused("plan explain --module --mesh 2 --dtype i64",
                 "--module: --dtype i64 is not a floating dtype");
  expect_refused("plan explain --module --mesh 1 --dim 255",
                 "--dim 255 is not divisible by --heads");
  expect_refused("plan explain --module --mesh 1 --dim 24", "--dim 24 / --heads 8 = 3 is odd");
  expect_refused("plan explain --module --mesh 3", "--heads 8 is not divisible by the 3 ranks");
  expect_refused("plan explain --module --mesh 2 --calibration /none",
                 "--calibration /none: No such file or directory");
  expect_refused("plan explain --module --mesh 2 --calibration /",
                 "--calibration /: Is a directory");
  const std::string path = coshard::testing::temporary_path("calibration");
  std::ofstream(path) << "something else\n";
  expect_refused("plan explain --module --mesh 2 --calibration " + path,
                 path + " is no calibration of this version");
}

TEST(Command, NumbersOfBenchesAreCheckedBeforeAnythingRuns) {
  for (const char* name :
       {"--steps", "--rounds", "--batch", "--seq", "--layers", "--dim", "--heads", "--ffn"})
    expect_refused(std::string("bench train ") + name + " 0",
                   std::string(name) + " 0: must be a number from 1 to ");
  expect_refused("bench train --ranks -1", "--ranks -1: must be a number from 0 to 64");
  expect_refused("bench train --threads 99999999999", "--threads 99999999999: must be a number");
  expect_refused("bench train --steps many", "--steps many: must be a number from 1 to ");
  expect_refused("bench overlap --ranks 100000", "--ranks 100000: must be a number from 0 to 64");
  expect_refused("bench overlap --ranks 1", "--ranks 1: needs at least 2 ranks to communicate");
  expect_refused("bench overlap --steps 0", "--steps 0: must be a number from 1 to ");
  expect_refused("bench overlap --rounds 0", "--rounds 0: must be a number from 1 to ");
  expect_refused("bench overlap --compute-ms nan", "--compute-ms nan: must be a number from 0.1 ");
  expect_refused("bench dispatch --ranks 0", "--ranks 0: must be a number from 1 to 64");
  expect_refused("bench redistribute --ranks -3", "--ranks -3: must be a number from 1 to 64");
}

TEST(Command, AShapeThatDoesNotFitIsNamedBeforeAnythingRuns) {
  expect_refused("bench train --heads 7", "--dim 256 is not divisible by --heads 7");
  expect_refused("bench train --ranks 3", "--heads 8 is not divisible by --ranks 3");
  expect_refused("bench train --dim 24", "--dim 24 / --heads 8 = 3 is odd");
  expect_refused("bench train --batch 1000000000", "--batch 1000000000 --ranks 2 take at least ");
  expect_refused("bench train --dim 1000000000", "GiB; this machine has ");
  expect_refused("bench forecast --heads 3", "--dim 256 is not divisible by --heads 3");
  expect_refused("bench forecast --ranks 3", "--heads 8 is not divisible by --ranks 3");
  expect_refused("bench forecast --batch 3", "--batch 3 is not divisible by --ranks 2");
  expect_refused("bench forecast --dim 1000000000", "GiB; this machine has ");
}

TEST(Command, WordsThatAreNotKnownAreNamed) {
  expect_refused("bench train --plan pp", "--plan pp: expected tp, tp-sp or dp");
  expect_refused("bench train --dtype f16", "--dtype f16: expected f32, bf16 or f64");
  expect_refused("bench gpu --device gpu", "--device gpu: expected cpu or cuda");
  expect_refused("bench dispatch --communicator foo", "--communicator foo: this build has local");
  expect_refused("bench train --peer /nowhere/peer.py", "/nowhere/peer.py");
  expect_refused("doctor --device gpu", "--device gpu: expected cpu or cuda");
  expect_refused("doctor --communicator mpi", "--communicator mpi: expected local");
}

TEST(Command, RunReadsItsOwnOptionsAndLeavesTheRestToTheProgram) {
  expect_refused("run", "run needs a program");
  expect_refused("run -n 2 --", "run needs a program");
  expect_refused("run -n 0 ./program", "-n 0: must be a number from 1 to 1024");
  expect_refused("run -n two ./program", "-n two: must be a number from 1 to 1024");
  expect_refused("run --mpi lam ./program", "--mpi lam: expected openmpi or mpich");
  expect_refused("run --host a ./program", "unknown option --host of run; did you mean --hosts?");
  expect_refused("run -n 2 --hosts a,b,c ./program --bogus",
                 "--hosts a,b,c names 3 hosts, more than -n 2");
  expect_refused("run -n", "needs a value");
  std::string empty = "";
  std::array<char*, 5> words = {const_cast<char*>("coshard"), const_cast<char*>("run"),
                                const_cast<char*>("--hosts"), empty.data(),
                                const_cast<char*>("./program")};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(command(words.size(), words.data()), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "coshard: --hosts needs a value\n");
  EXPECT_NE(run("run --help").out.find("\nUsage: coshard run [OPTIONS] PROGRAM [ARGUMENTS]\n"),
            std::string::npos);
}

TEST(Command, APatternThatNoCaseHasIsNamed) {
  const std::string line = "conform " COSHARD_CONFORMANCE_CASES " --only ";
  expect_refused(line + "zzz", "--only zzz: no case in ");
  const Ended one = run(line + "redistribute_1d/S0-to-R/");
  EXPECT_EQ(one.code, 0);
  EXPECT_NE(one.out.find(" passed, 0 failed\n"), std::string::npos) << one.out;
}

// Each would judge or measure ranks that the other has.
TEST(Command, WhatRunsAllRanksAsThreadsRefusesToBeOneOfSeveralProcesses) {
  ::setenv("PMI_SIZE", "2", 1), ::setenv("PMI_RANK", "0", 1);
  for (const std::string command :
       {"conform", "bench dispatch", "bench overlap", "bench gpu --device cpu"}) {
    const bool cases = command == "conform";
    expect_refused(cases ? "conform " COSHARD_CONFORMANCE_CASES : command,
                   command.substr(0, command.find(" --")) +
                       " runs all ranks as threads, but was started as one of several processes: "
                       "PMI_SIZE=2 and PMI_RANK=0");
  }
  ::unsetenv("PMI_SIZE"), ::unsetenv("PMI_RANK");
}

}  // namespace
}  // namespace coshard::tools
