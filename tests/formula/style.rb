# Homebrew's own rules of style (what `brew style` checks) over the formula, as it stands and as tools/release writes it:
#
#     ruby style.rb BREW
#
# BREW is a checkout of Homebrew/brew.  Its cops run unchanged under Debian's packages rubocop,
# ruby-rubocop-performance and ruby-rubocop-rspec; rules that this rubocop does not know are named and left out.
require "fileutils"
require "tmpdir"
require "yaml"

brew = File.expand_path(ARGV.fetch(0))
home = "#{brew}/Library/Homebrew"
$LOAD_PATH.unshift home
Dir["#{home}/vendor/bundle/ruby/*/gems/{sorbet-runtime,concurrent-ruby}-*/lib"].each { |d| $LOAD_PATH << d }
require "rubocop"
require "sorbet-runtime"
require "extend/module"
require "standalone/sorbet"
class Module
  include T::Sig
end
require "rubocops/all"

config = YAML.unsafe_load_file("#{brew}/Library/.rubocop.yml")
%w[plugins require].each { |key| config.delete(key) }
config["AllCops"].delete("UseProjectIndex")
config["AllCops"]["TargetRubyVersion"] = RUBY_VERSION.to_f
registry = RuboCop::Cop::Registry.global
known = registry.names + registry.departments.map(&:to_s) + %w[AllCops inherit_mode]
unknown = config.keys - known
unknown.each { |name| config.delete(name) }
puts "left out: #{unknown.join(" ")}"

formula = File.read("#{__dir__}/../../Formula/ingot.rb")
place = /  (?:# tools\/release writes url and sha256 of a release here\.|url "[^"\n]*"\n  sha256 "\h{64}")\n/
released = formula.sub(place, "  url \"https://example.org/ingot-1.2.3.tar.xz\"\n  sha256 \"#{"a1" * 32}\"\n")
abort "no place for a release's address" if formula !~ place
Dir.mktmpdir do |folder|
  File.write("#{folder}/rules.yml", YAML.dump(config))
  good = [formula, released].map.with_index do |text, i|
    FileUtils.mkdir_p("#{folder}/#{i}/Formula")
    File.write("#{folder}/#{i}/Formula/ingot.rb", text)
    RuboCop::CLI.new.run(["--config", "#{folder}/rules.yml", "--cache", "false", "#{folder}/#{i}/Formula/ingot.rb"])
  end
  exit good.all?(0)
end
